"""The shape in which values travel from an engine to an API server, as plain lists and dicts.

The other process may have another version of kvoxide. So the reader takes what it understands and
skips the rest.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from kvoxide.vllm.environment.counters import Labels

LARGEST: Final = 1e300
MAX_LABEL_CHARACTERS: Final = 400
MAX_BUCKETS: Final = 100

Key: TypeAlias = tuple[str, Labels]
"""The name of a metric, and its labels."""


class Distribution(NamedTuple):
    """Observations of a histogram. ``counts`` has one more entry than ``bounds``: the observations
    above the last bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


@dataclass
class Values:
    """The values of metrics. In a report, counters and histograms are increments."""

    counters: dict[Key, float] = field(default_factory=dict)
    gauges: dict[Key, float] = field(default_factory=dict)
    histograms: dict[Key, Distribution] = field(default_factory=dict)

    def count(self, metric: str, total: float, **labels: str) -> None:
        """Set a counter to its total."""
        self.counters[metric, labels_of(labels)] = total

    def gauge(self, metric: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self.gauges[metric, labels_of(labels)] = value

    def distribute(self, metric: str, distribution: Distribution, **labels: str) -> None:
        """Set a histogram to all of its observations."""
        self.histograms[metric, labels_of(labels)] = distribution


def labels_of(labels: dict[str, str]) -> Labels:
    """Return labels in the order of their names."""
    return tuple(sorted(labels.items()))


def as_payload(values: Values) -> dict[str, Any]:
    """Return values as lists and dicts that msgpack can encode."""
    return {
        "counters": [[name, dict(labels), n] for (name, labels), n in values.counters.items()],
        "gauges": [[name, dict(labels), n] for (name, labels), n in values.gauges.items()],
        "histograms": [
            [name, dict(labels), list(found.bounds), list(found.counts), found.sum]
            for (name, labels), found in values.histograms.items()
        ],
    }


def read_payload(payload: Any) -> Values:
    """Return the values of a payload. Entries that this version cannot read are left out."""
    values = Values()
    for key, amount in _entries(payload, "counters", 3):
        if _is_number(amount[0]) and amount[0] >= 0:
            values.counters[key] = amount[0]
    for key, value in _entries(payload, "gauges", 3):
        if _is_number(value[0]):
            values.gauges[key] = value[0]
    for key, parts in _entries(payload, "histograms", 5):
        distribution = _distribution(*parts)
        if distribution is not None:
            values.histograms[key] = distribution
    return values


def _entries(payload: Any, kind: str, length: int) -> Iterator[tuple[Key, Any]]:
    entries = payload.get(kind) if isinstance(payload, dict) else None
    for entry in entries if isinstance(entries, list | tuple) else ():
        if not isinstance(entry, list | tuple) or len(entry) != length:
            continue
        name, labels, *rest = entry
        if isinstance(name, str) and _are_labels(labels):
            yield (name, labels_of(labels)), rest


def _are_labels(labels: Any) -> bool:
    return isinstance(labels, dict) and all(
        isinstance(text, str) and len(text) <= MAX_LABEL_CHARACTERS
        for text in (*labels.keys(), *labels.values())
    )


def _distribution(bounds: Any, counts: Any, total: Any) -> Distribution | None:
    if not (_are_numbers(bounds) and _are_numbers(counts) and _is_number(total)):
        return None
    is_plain = all(type(count) is int and count >= 0 for count in counts) and total >= 0
    is_ordered = all(low < high for low, high in pairwise(bounds))
    if not (is_plain and is_ordered and 1 <= len(bounds) <= MAX_BUCKETS):
        return None
    if len(counts) != len(bounds) + 1:
        return None
    return Distribution(tuple(map(float, bounds)), tuple(counts), float(total))


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(map(_is_number, values))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


class Increments:
    """Computes increments between totals. A total that falls sends nothing until it is above its
    highest value again."""

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self._counters: dict[Key, float] = {}
        self._histograms: dict[Key, Distribution] = {}

    def since_last(self, totals: Values) -> Values:
        """Return what to send for ``totals``. A counter or a histogram is sent for the first time
        even if it is zero."""
        return Values(
            counters=dict(self._of_counters(totals.counters.items())),
            gauges=totals.gauges,
            histograms=dict(self._of_histograms(totals.histograms.items())),
        )

    def _of_counters(self, totals: Iterable[tuple[Key, float]]) -> Iterator[tuple[Key, float]]:
        for key, total in totals:
            sent = self._counters.get(key)
            if sent is None or total > sent:
                self._counters[key] = max(total, 0)
                yield key, max(total, 0) - (sent or 0)

    def _of_histograms(
        self, totals: Iterable[tuple[Key, Distribution]]
    ) -> Iterator[tuple[Key, Distribution]]:
        for key, total in totals:
            sent = self._histograms.get(key)
            if sent is None:
                self._histograms[key] = total
                yield key, total
            elif total.counts != sent.counts and total.bounds == sent.bounds:
                counts = [
                    max(now, before) for now, before in zip(total.counts, sent.counts, strict=True)
                ]
                new = tuple(now - old for now, old in zip(counts, sent.counts, strict=True))
                total_sum = max(total.sum, sent.sum)
                self._histograms[key] = Distribution(total.bounds, tuple(counts), total_sum)
                yield key, Distribution(total.bounds, new, total_sum - sent.sum)
