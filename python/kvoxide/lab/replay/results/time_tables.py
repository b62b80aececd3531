"""Tables of what came of time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kvoxide._core import InstanceResult, ServingResult
from kvoxide.lab.output.tables import Column, Table, print_table
from kvoxide.lab.replay.run import Outcome

Cell = Callable[[InstanceResult], str]


def print_serving(outcomes: Sequence[Outcome]) -> None:
    """Print the tables of :func:`serving_tables`."""
    for table in serving_tables(outcomes):
        print_table(*table)


def serving_tables(outcomes: Sequence[Outcome]) -> Iterator[Table]:
    """A line per run, and, where there are several, one per instance; nothing where no time
    passed. A bound, which has no schedule of its own, has none."""
    timed = list(timed_outcomes(outcomes))
    if not timed:
        return
    rows = [(o, result.total) for o, result in timed]
    yield Table("Times in seconds", _keys([o for o, _ in rows]), _columns([r for _, r in rows]))
    if all(len(result.instances) == 1 for _, result in timed):
        return
    each = [(o, i, r) for o, result in timed for i, r in enumerate(result.instances)]
    instances = Column("instance", [str(number) for _, number, _ in each])
    keys = [*_keys([o for o, _, _ in each]), instances]
    yield Table("Instances", keys, _columns([result for _, _, result in each], _INSTANCE))


def timed_outcomes(outcomes: Sequence[Outcome]) -> Iterator[tuple[Outcome, ServingResult]]:
    """The runs in which time passed, each with what the clock showed."""
    for outcome in outcomes:
        if not outcome.is_bound and (result := outcome.result.serving) is not None:
            yield outcome, result


def _keys(outcomes: Sequence[Outcome]) -> list[Column]:
    keys = [Column("policy", [o.name for o in outcomes], is_name=True)]
    if len({o.run.blocks for o in outcomes}) > 2:
        sizes = [o.run.pool_blocks for o in outcomes]
        pools = ["-" if size is None else f"{size:,}" for size in sizes]
        keys.append(Column("pool\nblocks", pools))
    return keys


def _columns(
    results: Sequence[InstanceResult], more: dict[str, Cell] | None = None
) -> list[Column]:
    cells = {**(more or {}), **_FIGURES}
    return [Column(header, [cell(r) for r in results]) for header, cell in cells.items()]


def _quantile(which: int, name: str) -> Cell:
    def cell(result: InstanceResult) -> str:
        quantiles: tuple[float, float, float] | None = getattr(result, name)
        return "-" if quantiles is None else f"{quantiles[which]:,.3f}"

    return cell


def _rate(count: Callable[[InstanceResult], int], digits: int = 0) -> Cell:
    def cell(result: InstanceResult) -> str:
        seconds = result.makespan_seconds
        return f"{count(result) / seconds:,.{digits}f}" if seconds > 0 else "-"

    return cell


_INSTANCE: Final[dict[str, Cell]] = {
    "requests": lambda r: f"{r.requests:,}",
    "prompt\ntokens": lambda r: f"{r.prompt_tokens:,}",
    "hit\nshare": lambda r: f"{r.hit_tokens / max(1, r.prompt_tokens):.2%}",
    "preemptions": lambda r: f"{r.preemptions:,}",
}

_FIGURES: Final[dict[str, Cell]] = {
    "first token\np50": _quantile(0, "time_to_first_token"),
    "first token\np90": _quantile(1, "time_to_first_token"),
    "first token\np99": _quantile(2, "time_to_first_token"),
    "between\np50": _quantile(0, "time_between_tokens"),
    "between\np90": _quantile(1, "time_between_tokens"),
    "between\np99": _quantile(2, "time_between_tokens"),
    "generated\ntokens/s": _rate(lambda r: r.generated_tokens),
    "prompt\ntokens/s": _rate(lambda r: r.prompt_tokens),
    "requests\n/s": _rate(lambda r: r.requests, 2),
    "in steps": lambda r: f"{r.utilisation:.1%}",
    "running\nrequests": lambda r: f"{r.running_requests:,.1f}",
    "makespan": lambda r: f"{r.makespan_seconds:,.1f}",
}
