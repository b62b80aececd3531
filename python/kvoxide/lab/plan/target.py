"""Reads the targets of a deployment: ``ttft_p99<2s``, ``hit_share>30%``."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kvoxide._core import ConfigError, SimulationResult

_TEXT: Final = re.compile(
    r"\s*(?P<metric>[A-Za-z0-9_]+)\s*(?P<sign><=|>=|<|>)\s*(?P<number>[0-9.eE+-]+)\s*(?P<unit>\S*)\s*"
)
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_SHARE: Final = {"%": 0.01, "": 1.0}
_RATE: Final = {"": 1.0, "tok/s": 1.0, "tokens/s": 1.0, "k": 1e3, "ktok/s": 1e3}
_EXAMPLE: Final = "write ttft_p99<2s, hit_share>30% or throughput>5000tok/s"


@dataclass(frozen=True)
class Metric:
    """A figure of a run.

    ``units`` are the units in which users may write it. ``show`` formats it. ``of`` reads it from a
    result; it returns None if the run has no such figure. ``is_time`` marks figures that are
    computed from times.
    """

    units: dict[str, float]
    less_is_better: bool
    show: Callable[[float], str]
    of: Callable[[SimulationResult], float | None]
    is_time: bool = False


@dataclass(frozen=True)
class Target:
    """A limit of a metric, in seconds, shares from 0 to 1 or tokens per second.

    ``text`` is the user's text. With ``is_strict``, a figure equal to the limit misses the target.
    """

    text: str
    name: str
    limit: float
    is_strict: bool

    @property
    def metric(self) -> Metric:
        """The metric that is limited."""
        return METRICS[self.name]

    def is_met(self, value: float | None) -> bool:
        """Return whether a figure is within the limit. A missing figure never is."""
        if value is None or (value == self.limit and self.is_strict):
            return False
        return value <= self.limit if self.metric.less_is_better else value >= self.limit

    def margin(self, value: float | None) -> float | None:
        """Return how much better than the limit a figure is, as a share of the limit. A worse
        figure has a margin below 0. A missing figure has none."""
        if value is None:
            return None
        difference = value - self.limit
        return (-difference if self.metric.less_is_better else difference) / self.limit


def parse_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """Return targets for different metrics. Raises the errors of :func:`parse_target`."""
    targets = tuple(map(parse_target, texts))
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name} has two targets; give only the stricter one")
    return targets


def parse_target(text: str) -> Target:
    """Read a target: a metric of :data:`METRICS`, ``<``, ``<=``, ``>`` or ``>=``, a number and its
    unit. Raises :class:`~kvoxide._core.ConfigError` with the reason."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ConfigError(f"cannot read the target {text!r}; {_EXAMPLE}")
    name, sign = match["metric"], match["sign"]
    if name not in METRICS:
        raise ConfigError(f"{text!r}: {name!r} is not a figure; it can be {', '.join(METRICS)}")
    metric = METRICS[name]
    if sign[0] != ("<" if metric.less_is_better else ">"):
        better = "less" if metric.less_is_better else "more"
        right = sign.translate({ord("<"): ">", ord(">"): "<"})
        raise ConfigError(f"{text!r}: {better} of {name} is better; write {name}{right}...")
    return Target(text, name, _limit(text, metric, match["number"], match["unit"]), len(sign) == 1)


def _limit(text: str, metric: Metric, number: str, unit: str) -> float:
    if unit not in metric.units:
        known = ", ".join(filter(None, metric.units))
        given = f"{unit!r} is not a unit of it" if unit else "a unit is missing"
        raise ConfigError(f"{text!r}: {given}; it can be {known}")
    try:
        limit = float(number) * metric.units[unit]
    except ValueError:
        raise ConfigError(f"{text!r}: {number!r} is not a number") from None
    most = 1.0 if metric.units is _SHARE else 1e12
    if not 0 < limit <= most:
        above = " and at most 100 %" if metric.units is _SHARE else ""
        raise ConfigError(f"{text!r}: a limit must be above 0{above}")
    return limit


def _first_token(which: int) -> Callable[[SimulationResult], float | None]:
    def value(result: SimulationResult) -> float | None:
        times = result.serving and result.serving.total.time_to_first_token
        return times[which] if times else None

    return value


def _between_tokens(which: int) -> Callable[[SimulationResult], float | None]:
    def value(result: SimulationResult) -> float | None:
        times = result.serving and result.serving.total.time_between_tokens
        return times[which] if times else None

    return value


def _hit_share(result: SimulationResult) -> float | None:
    return result.hit_tokens / result.prompt_tokens if result.prompt_tokens else None


def _throughput(result: SimulationResult) -> float | None:
    total = result.serving and result.serving.total
    if not total or total.makespan_seconds <= 0:
        return None
    return total.generated_tokens / total.makespan_seconds


def _seconds(value: float) -> str:
    return f"{value:,.3f} s" if value >= 0.1 else f"{value * 1e3:,.2f} ms"


def _latencies(
    name: str, of: Callable[[int], Callable[[SimulationResult], float | None]]
) -> dict[str, Metric]:
    return {
        f"{name}_{quantile}": Metric(_SECONDS, True, _seconds, of(which), is_time=True)
        for which, quantile in enumerate(("p50", "p90", "p99"))
    }


METRICS: Final[dict[str, Metric]] = {
    **_latencies("ttft", _first_token),
    **_latencies("itl", _between_tokens),
    "hit_share": Metric(_SHARE, False, lambda value: f"{value:.2%}", _hit_share),
    "throughput": Metric(
        _RATE, False, lambda value: f"{value:,.0f} tok/s", _throughput, is_time=True
    ),
}
