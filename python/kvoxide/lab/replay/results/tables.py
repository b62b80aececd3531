"""Compute and print the tables of replays and experiments."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from kvoxide.lab.output.tables import Column, Table, print_table
from kvoxide.lab.replay.input import UNLIMITED
from kvoxide.lab.replay.results.curves import HitShares
from kvoxide.lab.replay.run import Outcome


def _count(number: int) -> str:
    return f"{number:,}"


def _pool(outcome: Outcome) -> str:
    return UNLIMITED if (blocks := outcome.run.pool_blocks) is None else _count(blocks)


def _peak(outcome: Outcome) -> str:
    return f"{_count(outcome.result.peak_used_blocks)} {outcome.peak_used_share:.1%}"


def _call_time(which: int) -> Callable[[Outcome], str]:
    return lambda outcome: f"{outcome.result.schedule_seconds[which] * 1e6:,.1f}"


def _loss_share(which: int) -> Callable[[Outcome], str]:
    return lambda outcome: f"{shares[which]:.2%}" if (shares := outcome.loss_shares) else "-"


def _answer_share(outcome: Outcome) -> str:
    share = outcome.answer_share
    return "-" if share is None else f"{share:.2%}"


_ON_ANSWERS: Final = "on\nanswers"
_ON_CPU: Final = "on\nCPU"
_FIGURES: dict[str, Callable[[Outcome], str]] = {
    "requests": lambda o: _count(o.result.requests),
    "rejected": lambda o: _count(o.result.rejected_requests),
    "prompt\ntokens": lambda o: _count(o.result.prompt_tokens),
    "generated\ntokens": lambda o: _count(o.result.generated_tokens),
    "hit\ntokens": lambda o: _count(o.hit_tokens),
    "hit\nshare": lambda o: f"{o.hit_share:.2%}",
    _ON_CPU: lambda o: "-" if (share := o.loaded_share) is None else f"{share:.2%}",
    _ON_ANSWERS: _answer_share,
    "evicted\nfull": _loss_share(0),
    "evicted\ntail": _loss_share(1),
    "never\ncached": _loss_share(2),
    "first\ntime": _loss_share(3),
    "run\ns": lambda o: f"{o.wall_seconds:.2f}",
}
# What only a pool has, which the unlimited line and the bound have not.
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
    """Print a line per run; in several tables where the terminal is too narrow for one."""
    print_table(*outcome_table(outcomes, title))


def print_hit_shares(shares: HitShares, title: str = "") -> None:
    """Print hit shares with a line per policy and a column per value of the quantity."""
    print_table(*hit_share_table(shares, title))


def outcome_table(outcomes: Sequence[Outcome], title: str) -> Table:
    """A line per run. "call" is one scheduling call: the look-up and allocation of one request in
    one step."""
    keys = [Column("policy", [o.name for o in outcomes], is_name=True)]
    if len({o.run.blocks for o in outcomes}) > 2:
        keys.append(Column("pool\nblocks", [_pool(o) for o in outcomes]))
    columns = [Column(header, [cell(o) for o in outcomes]) for header, cell in _FIGURES.items()]
    for header, cell in _POOL_FIGURES.items():
        columns.append(Column(header, [cell(o) if o.has_pool else "-" for o in outcomes]))
    if all(o.loaded_share is None for o in outcomes):
        columns = [column for column in columns if column.header != _ON_CPU]
    if not any(o.answer_share for o in outcomes):
        columns = [column for column in columns if column.header != _ON_ANSWERS]
    if not any(o.result.rejected_requests for o in outcomes):
        columns = [column for column in columns if column.header != "rejected"]
    else:
        title += (
            "\nrejected requests are too large for the pool; no other figure counts them."
            " Compare only lines with the same rejections"
        )
    return Table(title, keys, columns)


def hit_share_table(shares: HitShares, title: str = "") -> Table:
    """Hit shares with a line per policy and a column per value of the quantity."""
    columns = [
        Column(f"{x:,}", [_share(row[index]) for row in shares.by_policy.values()])
        for index, x in enumerate(shares.xs)
    ]
    title = f"{title}\nHit share over {shares.x_name}".lstrip()
    return Table(title, [Column("policy", list(shares.by_policy), is_name=True)], columns)


def _share(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1%}"
