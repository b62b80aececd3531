"""``kvoxide experiment``: the two published experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kvoxide.lab.output.figures import save
from kvoxide.lab.output.files import check_distinct, json_document, replacing
from kvoxide.lab.output.options import html_option, output_option, plot_option, quiet_option
from kvoxide.lab.replay.input import DEFAULT_POLICY, NamedPolicy
from kvoxide.lab.replay.page import experiment_page
from kvoxide.lab.replay.results import (
    HitShares,
    draw_hit_shares,
    experiment_rows,
    experiment_shares,
    print_hit_shares,
)
from kvoxide.lab.replay.run import (
    Experiment,
    Incomplete,
    LongContexts,
    Outcome,
    Place,
    Prefixes,
    Run,
    check_run,
    execute_watched,
    on_option,
    plan_experiment,
)
from kvoxide.lab.replay.setup import policies_option

PREFIXES = Prefixes()
LONG_CONTEXTS = LongContexts()

_json_option = output_option(
    "--json", "FILE", 'Write {"missing_runs": N, "rows": [...]} with one row per finished run.'
)
_plot_option = plot_option("Plot the hit shares.")


@click.group()
def experiment() -> None:
    """Published experiments on retention policies."""


@experiment.command()
@policies_option(DEFAULT_POLICY, "fifo", "uncached-first", "interval=8192", "pin")
@_json_option
@_plot_option
@html_option
@on_option
@quiet_option
def prefixes(
    policies: tuple[NamedPolicy, ...],
    json_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
    place: Place | None,
    quiet: bool,
) -> None:
    """Measure the hit share for 15, 20, 30 and 60 shared prefixes.

    The groups are like Gemma-3's, and the pool has 189,245 blocks. A prefix has 28,000 tokens, and
    each request adds 200 of its own. Requests use the prefixes in turn. There are two passes, and
    only the second one counts.
    """
    _run(PREFIXES, policies, json_path, plot_path, html_path, place, quiet)


@experiment.command("long-contexts")
@policies_option(DEFAULT_POLICY, "fifo", "uncached-first", "interval=32768")
@_json_option
@_plot_option
@html_option
@on_option
@quiet_option
def long_contexts(
    policies: tuple[NamedPolicy, ...],
    json_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
    place: Place | None,
    quiet: bool,
) -> None:
    """Measure the hit share of long prompts that are repeated at 100, 90, ... 10 % of their length.

    The groups are like DeepSeek-V4's. There are 14 prompts of 1,000,000 tokens. The pool has 14.5
    times the blocks that vLLM reserves for one prompt. Only the repeated prompts count.
    """
    _run(LONG_CONTEXTS, policies, json_path, plot_path, html_path, place, quiet)


def _run(
    which: Experiment,
    policies: tuple[NamedPolicy, ...],
    json_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
    place: Place | None,
    quiet: bool,
) -> None:
    check_distinct("", [json_path, plot_path, html_path])
    runs = plan_experiment(which, policies)
    for run in runs[: len(policies)]:
        check_run(run)
    played = _play(which, runs, place, quiet=quiet)
    try:
        _write(played, json_path, plot_path, html_path)
    finally:
        if not quiet:
            print_hit_shares(played.shares, played.title)
    if played.failure is not None:
        raise played.failure


@dataclass(frozen=True)
class _Played:
    """An experiment that was done; ``failure`` is why ``num_missing`` more runs could not be."""

    which: Experiment
    outcomes: list[Outcome]
    num_missing: int = 0
    failure: Incomplete | None = None

    @property
    def title(self) -> str:
        return f"{self.which.groups.text}, {self.which.pool_blocks:,} blocks"

    def record(self) -> dict[str, Any]:
        """A row per run that was done, and how many are missing, as a JSON value."""
        return {
            "missing_runs": self.num_missing,
            "rows": experiment_rows(self.which, self.outcomes),
        }

    @property
    def shares(self) -> HitShares:
        return experiment_shares(self.which, self.outcomes)


def _play(which: Experiment, runs: Sequence[Run], place: Place | None, *, quiet: bool) -> _Played:
    try:
        return _Played(which, execute_watched(runs, place, quiet=quiet))
    except Incomplete as error:
        if not error.finished:
            raise
        return _Played(which, error.finished, len(runs) - len(error.finished), error)


def _write(
    played: _Played, json_path: Path | None, plot_path: Path | None, html_path: Path | None
) -> None:
    if json_path is not None:
        with replacing(json_path) as stream:
            stream.write(json_document(played.record()))
    if plot_path is not None:
        with replacing(plot_path) as stream:
            save(draw_hit_shares(played.shares, played.title), stream, plot_path.suffix)
    if html_path is not None:
        page = experiment_page(played.shares, played.title, played.num_missing, played.failure)
        with replacing(html_path) as stream:
            stream.write(page)
