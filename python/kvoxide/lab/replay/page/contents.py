"""Choose the plots and tables of a page."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from kvoxide._core import __version__
from kvoxide.lab.output.tables import Table
from kvoxide.lab.replay.page import figures
from kvoxide.lab.replay.page.document import Figure, Group, Page, Section
from kvoxide.lab.replay.page.facts import facts, missing, tiles
from kvoxide.lab.replay.page.figures import Styles
from kvoxide.lab.replay.results import (
    HitShares,
    comparison_hit_shares,
    hit_share_table,
    host_notes,
    host_tables,
    outcome_table,
    serving_tables,
    timed_outcomes,
)
from kvoxide.lab.replay.run import Comparison, Incomplete, Outcome

_CALL = "A call is one scheduling call: the look-up and allocation of one request in one step."


def replay_contents(comparison: Comparison) -> Page:
    """The page of a replay."""
    outcomes = comparison.outcomes
    styles = Styles(list(dict.fromkeys(o.name for o in outcomes)))
    sections = [_hits(comparison, styles), _times(comparison, styles), _course(comparison, styles)]
    return Page(
        f"kvoxide replay: {PurePath(comparison.trace_file.name).name}",
        facts(comparison),
        list(tiles(comparison)),
        [section for section in sections if section is not None],
        f"kvoxide {__version__}; {comparison.duration}",
    )


def experiment_contents(
    shares: HitShares, settings: str, num_missing: int, failure: Incomplete | None
) -> Page:
    """The page of a published experiment."""
    styles = Styles(list(shares.by_policy))
    section = Section(
        "Hits",
        figures=[figures.hit_shares(shares, styles, f"Hit share over {shares.x_name}")],
        tables=[hit_share_table(shares)],
    )
    title = f"kvoxide experiment: hit share over {shares.x_name}"
    found = {"Settings": [settings], **missing(num_missing, failure)}
    return Page(title, found, (), [section], f"kvoxide {__version__}")


def _hits(comparison: Comparison, styles: Styles) -> Section:
    sizes, outcomes = comparison.settings.pool_sizes, comparison.outcomes
    bars = [
        figures.fates(
            _at(outcomes, size),
            styles,
            f"Outcome of the prompt tokens, {size:,} blocks",
            "whole" if len(sizes) == 1 else "half",
        )
        for size in _played(comparison)
    ]
    tables = [outcome_table(outcomes, f"All runs\n{_CALL}"), *_of_hosts(outcomes)]
    if len(sizes) == 1:
        return Section("Hits", figures=bars, tables=tables)
    shares = comparison_hit_shares(comparison)
    curve = figures.hit_shares(shares, styles, "Hit share over the pool size")
    return Section("Hits", figures=[curve, *bars], tables=[hit_share_table(shares), *tables])


def _of_hosts(outcomes: Sequence[Outcome]) -> Iterator[Table]:
    for title, keys, columns in host_tables(outcomes):
        yield Table("\n".join([title, *host_notes(outcomes)]), keys, columns)


def _times(comparison: Comparison, styles: Styles) -> Section | None:
    timed = list(timed_outcomes(comparison.outcomes))
    if not timed:
        return None
    sizes, drawn = comparison.settings.pool_sizes, list[Figure]()
    for which in figures.TIMES:
        if len(sizes) == 1:
            drawn.append(figures.quantiles(timed, styles, which))
        else:
            drawn += [figures.over_pools(timed, styles, sizes, which, at) for at in range(3)]
    for_size = {
        size: list(_over_time(_at(comparison.outcomes, size), styles))
        for size in _played(comparison)
    }
    drawn, groups = _with_each_size(comparison, drawn, for_size)
    return Section("Times", drawn, list(serving_tables(comparison.outcomes)), groups)


def _over_time(outcomes: Sequence[Outcome], styles: Styles) -> Iterator[Figure]:
    timed = list(timed_outcomes(outcomes))
    yield figures.over_arrivals(timed, styles)
    if any(len(result.instances) > 1 for _, result in timed):
        yield from figures.by_instance(timed, styles)


def _course(comparison: Comparison, styles: Styles) -> Section | None:
    for_size = {
        size: list(_of_pool(_at(comparison.outcomes, size), styles)) for size in _played(comparison)
    }
    drawn, groups = _with_each_size(comparison, [], for_size)
    return Section("Over the trace", drawn, groups=groups) if for_size else None


def _with_each_size(
    comparison: Comparison, drawn: list[Figure], for_size: dict[int, list[Figure]]
) -> tuple[list[Figure], list[Group]]:
    """Return the figures and the groups of a section. With several pool sizes there is a group for
    each, and the first is open. Otherwise all figures are in one list."""
    if len(comparison.settings.pool_sizes) == 1:
        return [*drawn, *itertools.chain.from_iterable(for_size.values())], []
    return drawn, [
        Group(f"{size:,} blocks", found, is_open=size == min(for_size))
        for size, found in for_size.items()
    ]


def _of_pool(outcomes: Sequence[Outcome], styles: Styles) -> Iterator[Figure]:
    yield figures.hit_course(outcomes, styles)
    found = [o for o in outcomes if o.has_pool and len(o.result.retention_timeline)]
    if found:
        yield figures.evictions(found, styles)
    for outcome in found:
        yield figures.blocks(outcome)


def _played(comparison: Comparison) -> list[int]:
    """The pool sizes in blocks that there are runs of: all, unless runs are missing."""
    sizes = {outcome.run.blocks for outcome in comparison.outcomes}
    return [size for size in comparison.settings.pool_sizes if size in sizes]


def _at(outcomes: Sequence[Outcome], size: int) -> list[Outcome]:
    """The runs at this pool size in blocks, and what they are compared with."""
    return [outcome for outcome in outcomes if outcome.run.blocks in (size, None)]
