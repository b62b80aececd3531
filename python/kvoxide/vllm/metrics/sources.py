"""Reads the totals of all metrics in an engine's process.

Everything but the states of blocks takes the same time for pools of every size.
"""

from collections import Counter
from collections.abc import Callable
from itertools import product
from time import monotonic
from typing import Any, Final

from kvoxide.vllm.environment import (
    SettingsError,
    counters,
    hints,
    log_metrics_off,
    observed_engine,
    recognise,
    releases,
    settings,
)
from kvoxide.vllm.environment.fallbacks import METRIC
from kvoxide.vllm.metrics import host_tier, outcomes
from kvoxide.vllm.metrics.definitions import BY_NAME, PARTS, SCORING_FUNCTIONS
from kvoxide.vllm.metrics.report import Distribution, Key, Values, labels_of

NATIVE_PACKAGE: Final = "kvoxide.vllm.adapter."

MAX_SHARE_OF_COUNTS: Final = 0.001
"""The most that counts of all blocks take of the time."""


class Sources:
    """The sources of one scheduler. A source that raises is left out from then on."""

    def __init__(self, scheduler: Any) -> None:
        """Take a scheduler that was just constructed, and let its engine measure."""
        self._scheduler = scheduler
        self._info = _Info(scheduler)
        self._pool = _Pool()
        self._zeros = _zeros(METRIC, *((hints.METRIC,) if _reads_hints() else ()))
        self._readers: dict[str, Callable[[Values, float], None]] = {
            "this process": self._read_process,
            "kvoxide's state": self._read_state,
            "the block pool": self._read_pool,
            "calls": self._read_calls,
            "prompts": self._read_outcomes,
            "the CPU offload cache": self._read_host,
        }
        if (engine := self._engine()) is not None:
            engine.time_calls()
        if (observed := observed_engine(scheduler)) is not None:
            observed.observe_outcomes()

    def totals(self, now: float) -> Values:
        """Return the totals at ``now``, in seconds of :func:`time.monotonic`."""
        values = Values()
        for name, read in list(self._readers.items()):
            try:
                read(values, now)
            except Exception as error:
                del self._readers[name]
                log_metrics_off(name, repr(error))
        return values

    def _engine(self) -> Any:
        """Return the engine of kvoxide's manager; None if the manager is vLLM's, or poisoned."""
        manager = self._scheduler.kv_cache_manager
        if not is_native(manager) or manager.engine.is_poisoned:
            return None
        return manager.engine

    def _read_process(self, values: Values, now: float) -> None:
        values.counters.update(self._zeros)
        for metric, counts in counters.counters().items():
            values.counters.update({(metric, labels): count for labels, count in counts.items()})
        for metric, gauges in counters.gauges().items():
            values.gauges.update({(metric, labels): value for labels, value in gauges.items()})

    def _read_state(self, values: Values, now: float) -> None:
        manager, connector = self._scheduler.kv_cache_manager, self._scheduler.connector
        self._info.add_to(values, is_native(manager))
        active = {"manager": self._engine() is not None, "host": host_tier.is_active(connector)}
        for part in PARTS:
            if part in active or ("kvoxide_active", (("part", part),)) not in values.gauges:
                values.gauge("kvoxide_active", int(active.get(part, False)), part=part)
        is_poisoned = is_native(manager) and manager.engine.is_poisoned
        values.gauge("kvoxide_poisoned", int(is_poisoned), part="manager")
        values.gauge("kvoxide_poisoned", int(host_tier.has_failed(connector)), part="host")

    def _read_pool(self, values: Values, now: float) -> None:
        manager = self._scheduler.kv_cache_manager
        if not is_native(manager):
            _add_blocks_of_vllm(values, manager.block_pool)
        elif (engine := self._engine()) is not None:
            self._pool.add_to(values, engine, now, is_idle=not self._scheduler.running)

    def _read_calls(self, values: Values, now: float) -> None:
        if (engine := self._engine()) is None:
            return
        bounds, calls = engine.call_seconds()
        for call, (counts, seconds) in calls.items():
            distribution = Distribution(tuple(bounds), tuple(counts), seconds)
            values.distribute("kvoxide_call_seconds", distribution, call=call)

    def _read_outcomes(self, values: Values, now: float) -> None:
        engine = observed_engine(self._scheduler)
        if engine is not None and not engine.is_poisoned:
            outcomes.add_outcomes(values, engine)

    def _read_host(self, values: Values, now: float) -> None:
        if host_tier.add_host_tier(values, self._scheduler.connector):
            values.counters = _zeros("kvoxide_host_lookups_total") | values.counters


def is_native(manager: Any) -> bool:
    """Return whether vLLM's scheduler has kvoxide's manager."""
    return type(manager).__module__.startswith(NATIVE_PACKAGE)


def _reads_hints() -> bool:
    try:
        return settings.current().retention == "adaptive"
    except (ImportError, SettingsError):  # vLLM's own code serves
        return False


def _zeros(*metrics: str) -> dict[Key, float]:
    """Return zero for all known labels of counters. So the first event increases a series that
    exists."""
    return {
        (metric, labels_of(dict(zip(BY_NAME[metric].labels, values, strict=True)))): 0
        for metric in metrics
        for values in product(*BY_NAME[metric].labels.values())
    }


class _Info:
    """Describes kvoxide in the labels of ``kvoxide_info``."""

    def __init__(self, scheduler: Any) -> None:
        from kvoxide import __version__

        recognition = recognise()
        self._labels = {
            "version": __version__,
            "vllm": releases.installed_version() or "unknown",
            "code_of": recognition.release.version if recognition.is_known else "unknown",
            "mode": settings.current_mode(),
            "groups": _described_groups(scheduler.kv_cache_config.kv_cache_groups),
        }
        self._policies: list[str] = []

    def add_to(self, values: Values, is_native: bool) -> None:
        """Add 1 for the present labels, and 0 for those before a switch to vLLM's own manager."""
        policy = settings.current().policy if is_native else "vllm"
        if policy not in self._policies:
            self._policies.append(policy)
        for known in self._policies:
            values.gauge("kvoxide_info", int(known == policy), policy=known, **self._labels)


def _described_groups(groups: Any) -> str:
    kinds: Counter[str]
    try:
        from kvoxide.vllm.adapter import group_specs

        kinds = Counter(group.kind for group in group_specs(groups))
    except (ImportError, ValueError):  # the compiled module is missing, or a group is unsupported
        kinds = Counter(type(group.kv_cache_spec).__name__ for group in groups)
    return ",".join(f"{kind}:{count}" for kind, count in kinds.items())


class _Pool:
    """Counts the blocks of an engine's pool by state, which takes time proportional to the pool."""

    def __init__(self) -> None:
        self._due = 0.0
        self._last = Values()

    def add_to(self, values: Values, engine: Any, now: float, *, is_idle: bool) -> None:
        """Add the counts. They are counted again if the engine is idle, or if enough time has
        passed since the last time."""
        if is_idle or now >= self._due:
            self._last = Values()
            began = monotonic()
            self._count(engine)
            self._due = now + (monotonic() - began) / MAX_SHARE_OF_COUNTS
        values.gauges.update(self._last.gauges)
        values.counters.update(self._last.counters)

    def _count(self, engine: Any) -> None:
        report = engine.retention_report()
        if report is None:
            states = dict(zip(_STATES, engine.count_blocks(), strict=True))
        else:
            evictable = report.full_blocks + report.tail_blocks
            counts = report.in_use_blocks, evictable, report.protected_blocks, report.empty_blocks
            states = dict(zip(_STATES, counts, strict=True))
            self._add_retention(report)
        for state, blocks in states.items():
            self._last.gauge("kvoxide_blocks", blocks, state=state)

    def _add_retention(self, report: Any) -> None:
        last = self._last
        last.count("kvoxide_default_hit_tokens_total", report.default_hit_tokens)
        for name in SCORING_FUNCTIONS:
            last.gauge("kvoxide_scoring_function", int(name == report.scoring_function), name=name)


_STATES: Final = ("in_use", "evictable", "protected", "empty")


def _add_blocks_of_vllm(values: Values, pool: Any) -> None:
    """Add the states of blocks that vLLM's pool counts itself."""
    free = pool.get_num_free_blocks()
    values.gauge("kvoxide_blocks", pool.num_gpu_blocks - 1 - free, state="in_use")
    values.gauge("kvoxide_blocks", free, state="free")
