"""Tables on standard output."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kvoxide.replay.curves import HitShares
from kvoxide.replay.policies import UNLIMITED
from kvoxide.replay.runner import Outcome

# Wider than any table: a pipe has no edge to fit into.
_PIPE_WIDTH = 2000


@dataclass(frozen=True)
class _Column:
    header: str
    cells: list[str]


def _count(number: int) -> str:
    return f"{number:,}"


def _pool(outcome: Outcome) -> str:
    return UNLIMITED if outcome.run.blocks is None else _count(outcome.run.blocks)


def _peak(outcome: Outcome) -> str:
    return f"{_count(outcome.result.peak_used_blocks)} {outcome.peak_used_share:.1%}"


def _call_time(which: int) -> Callable[[Outcome], str]:
    return lambda outcome: f"{outcome.result.schedule_seconds[which] * 1e6:,.1f}"


_FIGURES: dict[str, Callable[[Outcome], str]] = {
    "requests": lambda o: _count(o.result.requests),
    "rejected": lambda o: _count(o.result.rejected_requests),
    "prompt\ntokens": lambda o: _count(o.result.prompt_tokens),
    "generated\ntokens": lambda o: _count(o.result.generated_tokens),
    "hit\ntokens": lambda o: _count(o.result.hit_tokens),
    "hit\nshare": lambda o: f"{o.hit_share:.2%}",
    "run\ns": lambda o: f"{o.result.wall_seconds:.2f}",
}
# What only a pool has, which the unlimited line has not.
_POOL_FIGURES: dict[str, Callable[[Outcome], str]] = {
    "evictions": lambda o: _count(o.result.evictions),
    "preemptions": lambda o: _count(o.result.preemptions),
    "peak use\nblocks": _peak,
    "left cached\nblocks": lambda o: _count(o.result.cached_blocks),
    "call p50\nµs": _call_time(0),
    "call p99\nµs": _call_time(1),
    "call max\nµs": _call_time(2),
}


def print_outcomes(outcomes: Sequence[Outcome], title: str) -> None:
    """Print a line per run; in several tables where the terminal is too narrow for one.

    "call" is one scheduling call: the look-up and allocation of one request in one step.
    """
    keys = [_Column("policy", [o.run.policy.name for o in outcomes])]
    if len({o.run.blocks for o in outcomes}) > 2:
        keys.append(_Column("pool\nblocks", [_pool(o) for o in outcomes]))
    columns = [_Column(header, [cell(o) for o in outcomes]) for header, cell in _FIGURES.items()]
    for header, cell in _POOL_FIGURES.items():
        columns.append(_Column(header, ["-" if o.is_unlimited else cell(o) for o in outcomes]))
    if not any(o.result.rejected_requests for o in outcomes):
        columns = [column for column in columns if column.header != "rejected"]
    else:
        title += "\nrejected requests can never fit the pool; no other figure counts them"
    _print(title, keys, columns)


def print_hit_shares(shares: HitShares, title: str = "") -> None:
    """Print hit shares with a line per policy and a column per value of the quantity."""
    columns = [
        _Column(f"{x:,}", [f"{row[index]:.1%}" for row in shares.by_policy.values()])
        for index, x in enumerate(shares.xs)
    ]
    title = f"{title}\nHit share over {shares.x_name}".lstrip()
    _print(title, [_Column("policy", list(shares.by_policy))], columns)


def _print(title: str, keys: list[_Column], columns: list[_Column]) -> None:
    console = _console()
    console.print(Text(title))
    while columns:
        count = _num_fitting(console, keys, columns)
        console.print(_table(keys, columns[:count]))
        columns = columns[count:]


def _console() -> Console:
    # A file name, or µ, need not exist in the terminal's encoding.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def _num_fitting(console: Console, keys: list[_Column], columns: list[_Column]) -> int:
    """How many of the columns fit beside the keys, at least one."""
    unbounded = console.options.update(width=_PIPE_WIDTH)
    for count in range(len(columns), 1, -1):
        table = _table(keys, columns[:count])
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            return count
    return 1


def _table(keys: list[_Column], columns: list[_Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in (*keys, *columns):
        name = column.header == "policy"
        table.add_column(column.header, justify="left" if name else "right", no_wrap=not name)
    for row in zip(*(column.cells for column in (*keys, *columns)), strict=True):
        table.add_row(*map(Text, row))
    return table
