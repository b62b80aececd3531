"""``kvoxide experiment``: the two published experiments."""

from pathlib import Path

import click

from kvoxide.replay.experiments import (
    Experiment,
    LongContexts,
    Prefixes,
    experiment_rows,
    experiment_shares,
    plan_experiment,
)
from kvoxide.replay.options import output_option, plot_option, policies_option, quiet_option
from kvoxide.replay.outputs import check_distinct, replacing
from kvoxide.replay.page import experiment_page, html_option
from kvoxide.replay.plots import draw_hit_shares, save
from kvoxide.replay.policies import NamedPolicy
from kvoxide.replay.progress import execute_watched
from kvoxide.replay.records import json_document
from kvoxide.replay.report import print_hit_shares
from kvoxide.replay.runner import check_run

PREFIXES = Prefixes()
LONG_CONTEXTS = LongContexts()

_json_option = output_option("--json", "FILE", 'Write {"rows": [...]}, one row per run.')
_plot_option = plot_option("Draw the hit shares.")


@click.group()
def experiment() -> None:
    """Published experiments on retention policies."""


@experiment.command()
@policies_option("fifo", "uncached-first", "interval=8192", "pin")
@_json_option
@_plot_option
@html_option
@quiet_option
def prefixes(
    policies: tuple[NamedPolicy, ...],
    json_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
    quiet: bool,
) -> None:
    """Hit share over the number of shared prefixes that take turns.

    Gemma-3-like groups and 189,245 blocks; 15, 20, 30 and 60 shared prefixes of 28,000 tokens
    with 200 tokens of its own behind each; two passes, of which the second counts.
    """
    _run(PREFIXES, policies, json_path, plot_path, html_path, quiet)


@experiment.command("long-contexts")
@policies_option("fifo", "uncached-first", "interval=0", "interval=32768")
@_json_option
@_plot_option
@html_option
@quiet_option
def long_contexts(
    policies: tuple[NamedPolicy, ...],
    json_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
    quiet: bool,
) -> None:
    """Hit share of long prompts that come back at 100, 90, ... 10 % of their length.

    DeepSeek-V4-like groups; 14 prompts of 1,000,000 tokens; a pool of 14.5 times what vLLM
    reserves for one of them; the second asking counts.
    """
    _run(LONG_CONTEXTS, policies, json_path, plot_path, html_path, quiet)


def _run(
    which: Experiment,
    policies: tuple[NamedPolicy, ...],
    json_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
    quiet: bool,
) -> None:
    check_distinct("", [json_path, plot_path, html_path])
    runs = plan_experiment(which, policies)
    for run in runs[: len(policies)]:
        check_run(run)
    outcomes = execute_watched(runs, quiet=quiet)
    title = f"{which.groups.text}, {which.pool_blocks:,} blocks"
    shares = experiment_shares(which, outcomes)
    try:
        if json_path is not None:
            with replacing(json_path) as stream:
                stream.write(json_document({"rows": experiment_rows(which, outcomes)}))
        if plot_path is not None:
            with replacing(plot_path) as stream:
                save(draw_hit_shares(shares, title), stream, plot_path.suffix)
        if html_path is not None:
            with replacing(html_path) as stream:
                stream.write(experiment_page(shares, title))
    finally:
        if not quiet:
            print_hit_shares(shares, title)
