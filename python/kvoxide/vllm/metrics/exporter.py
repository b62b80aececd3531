"""Adds up the reports of engines and gives them to ``prometheus_client``, in an API server.

With several API servers, vLLM uses the multiprocess mode of ``prometheus_client``. It adds counters
and histograms of all processes, and takes the most recent value of gauges.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from prometheus_client import Counter, Gauge, Histogram
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from kvoxide.vllm.environment import log_metrics_off
from kvoxide.vllm.metrics.definitions import BY_NAME, COMMON_LABELS, Metric
from kvoxide.vllm.metrics.field import NAME
from kvoxide.vllm.metrics.front_end import values_without_engine
from kvoxide.vllm.metrics.report import Distribution, Key, Values, read_payload

MAX_LABEL_SETS: Final = 200
"""The most sets of labels of a metric. Further sets are left out."""

_families: Final[dict[str, Any]] = {}
"""The metrics of this process by name. Several engines of a process share them."""

_num_label_sets: Final[dict[str, set[tuple[str, ...]]]] = {}


class Exporter(AggregateStatLoggerBase):  # type: ignore[misc]
    """A stat logger of vLLM that exports what the engines report."""

    def __init__(self, vllm_config: Any, engine_indexes: Sequence[int]) -> None:
        """Take vLLM's arguments."""
        self._model_name = str(vllm_config.model_config.served_model_name)
        self._is_on = True
        for engine in engine_indexes:
            self._export(values_without_engine, engine)

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        *args: Any,
        engine_idx: int = 0,
        **kwargs: Any,
    ) -> None:
        """Export the report that came with these statistics, if there is one."""
        payload = getattr(scheduler_stats, NAME, None)
        if payload is not None and self._is_on:
            self._export(lambda: read_payload(payload), engine_idx)

    def log_engine_initialized(self) -> None:
        """Do nothing: engines report themselves."""

    def _export(self, read: Callable[[], Values], engine: int) -> None:
        """Export values. An error ends the metrics of this process, and never reaches vLLM."""
        try:
            values = read()
            common = (self._model_name, str(engine))
            for key, amount in values.counters.items():
                if (child := _child(key, "counter", common)) is not None:
                    child.inc(amount)
            for key, value in values.gauges.items():
                if (child := _child(key, "gauge", common)) is not None:
                    child.set(value)
            for key, distribution in values.histograms.items():
                if (child := _child(key, "histogram", common, distribution)) is not None:
                    _add(child, distribution)
        except Exception as error:
            self._is_on = False
            log_metrics_off("the API server", repr(error))


def _child(
    key: Key, kind: str, common: tuple[str, str], distribution: Distribution | None = None
) -> Any:
    """Return the metric with these labels, or None for a metric that this version does not
    have."""
    name, labels = key
    metric = BY_NAME.get(name)
    given = dict(labels)
    if metric is None or metric.kind != kind or given.keys() != metric.labels.keys():
        return None
    values = (*common, *(given[label] for label in metric.labels))
    known = _num_label_sets.setdefault(name, set())
    if values not in known:
        if len(known) >= MAX_LABEL_SETS:
            return None
        known.add(values)
    family = _families.get(name)
    if family is None:
        family = _families[name] = _new_family(metric, distribution)
    return family.labels(*values)


def _new_family(metric: Metric, distribution: Distribution | None) -> Any:
    names = (*COMMON_LABELS, *metric.labels)
    if metric.kind == "counter":
        return Counter(metric.name, metric.documentation, names)
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.documentation, names, multiprocess_mode="mostrecent")
    assert distribution is not None
    return Histogram(metric.name, metric.documentation, names, buckets=distribution.bounds)


def _add(histogram: Any, distribution: Distribution) -> None:
    """Add observations. ``prometheus_client`` has no call for many at once, so its buckets are
    increased directly."""
    bounds = [bound for bound in histogram._upper_bounds if bound != float("inf")]
    if tuple(bounds) != distribution.bounds:
        return  # an engine with another version of kvoxide has other buckets
    for bucket, count in zip(histogram._buckets, distribution.counts, strict=True):
        if count:
            bucket.inc(count)
    histogram._sum.inc(distribution.sum)
