"""``kvoxide replay``: a trace through the manager, once per policy and pool size."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kvoxide._core import ConfigError, StepTime
from kvoxide.replay.comparison import Comparison, Settings, compare
from kvoxide.replay.execution import Place, on_option
from kvoxide.replay.groups import PRESETS, Groups, parse_groups, preset_groups
from kvoxide.replay.model_options import model_options
from kvoxide.replay.options import (
    MAX_INTEGER,
    output_option,
    parsed_with,
    plot_option,
    policies_option,
    quiet_option,
    read_told,
    scheduler_options,
    trace_options,
)
from kvoxide.replay.outputs import check_distinct, replacing
from kvoxide.replay.page import html_option, replay_page
from kvoxide.replay.plots import draw_hit_shares, draw_trace, save
from kvoxide.replay.policies import DEFAULT_POLICY, NamedPolicy
from kvoxide.replay.reader import read_deployment
from kvoxide.replay.recording import Deployment
from kvoxide.replay.records import json_document, request_lines
from kvoxide.replay.report import print_hit_shares, print_outcomes
from kvoxide.replay.served_model import ServedModel
from kvoxide.replay.serving import (
    Router,
    StepFit,
    TimeOptions,
    instance_options,
    print_serving,
    time_options,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_PRESET = "llama"
DEFAULT_BLOCKS = "50000"
# The null block, and one that can be used.
MIN_BLOCKS = 2


def _parse_pool_sizes(text: str) -> tuple[int, ...]:
    """Pool sizes in blocks, comma separated; smallest first."""
    try:
        sizes = {int(size) for size in text.split(",")}
    except ValueError:
        raise ConfigError(f"{text!r} is not a number of blocks, or several with commas") from None
    return _checked_pool_sizes(sizes)


def _checked_pool_sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    sizes = set(sizes)
    for size in sizes:
        if not MIN_BLOCKS <= size <= MAX_INTEGER:
            raise ConfigError(f"{size} blocks: a pool has {MIN_BLOCKS:,} to {MAX_INTEGER:,} blocks")
    return tuple(sorted(sizes))


@click.command()
@trace_options
@click.option(
    "--groups",
    metavar="GROUPS",
    callback=parsed_with(parse_groups),
    help="KV cache groups as kind:block_size[:window][*count], comma separated, such as"
    " full:16,swa:16:1024*5. Kinds are full, mla, swa, swa-mla, chunked.",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help=f"The groups of a known model instead.  [default: {DEFAULT_PRESET}]",
)
@model_options
@click.option(
    "--blocks",
    "pool_sizes",
    metavar="N[,N...]",
    default=DEFAULT_BLOCKS,
    show_default=True,
    callback=parsed_with(_parse_pool_sizes),
    help="Size of the pool in blocks. Several sizes give hit share over pool size.",
)
@policies_option(DEFAULT_POLICY)
@scheduler_options
@click.option(
    "--bound",
    "has_bound",
    is_flag=True,
    help='Add the line "clairvoyant": what a policy that knows the future could hit.',
)
@time_options()
@instance_options
@on_option
@output_option("--json", "FILE", "Write settings, counts and times of all runs.")
@output_option("--per-request", "FILE.jsonl", "Write a line per run and request.")
@plot_option("Draw hit share and occupancy over the trace, or hit share over several pool sizes.")
@html_option
@quiet_option
@click.pass_context
def replay(
    context: click.Context,
    trace: str,
    groups: Groups | None,
    preset: str | None,
    pool_sizes: tuple[int, ...],
    policies: tuple[NamedPolicy, ...],
    concurrency: int,
    max_batched_tokens: int,
    requests: int | None,
    tokens_per_id: int | None,
    has_bound: bool,
    arrivals: str,
    speed: float | None,
    step_time: StepTime | None,
    fit: StepFit | None,
    instances: int,
    router: Router | None,
    place: Place | None,
    skip_bad: bool,
    json_path: Path | None,
    per_request_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
    quiet: bool,
    served: ServedModel | None,
) -> None:
    """Play TRACE through the manager as vLLM's scheduler would.

    TRACE is JSONL in Mooncake's format or with prompt_token_ids and output_length; plain, gzip
    or zstd. A single - is standard input; without TRACE, or with the word sample, it is the
    trace that comes with kvoxide. The folder that a server recorded to is played on what that
    server had, as far as no option says otherwise.

    There is one run for every policy and pool size. The line "unlimited" is what a pool that
    never evicts would hit.
    """
    check_distinct(trace, [json_path, per_request_path, plot_path, html_path])
    if has_bound and instances > 1:
        raise click.UsageError("--bound is for one instance")
    recorded = read_deployment(trace)
    if recorded is not None:
        if _is_default(context, "concurrency"):
            concurrency = recorded.max_running_requests
        if _is_default(context, "max_batched_tokens"):
            max_batched_tokens = recorded.max_batched_tokens
        if _is_default(context, "pool_sizes") and served is None:
            pool_sizes = (recorded.num_blocks,)
    time = TimeOptions(arrivals, speed, step_time, fit)
    settings = Settings(
        _choose_groups(groups, preset, served, recorded),
        _choose_pool_sizes(context, pool_sizes, served),
        policies,
        concurrency,
        max_batched_tokens,
        has_bound=has_bound,
        served=served,
        serving=time.serving(instances, router),
        fit=fit,
    )
    settings.check()
    trace_file = read_told(
        trace, requests=requests, skip_bad=skip_bad, tokens_per_id=tokens_per_id, quiet=quiet
    )
    comparison = compare(settings, trace_file, place, quiet=quiet)
    try:
        _write(comparison, json_path, per_request_path, plot_path, html_path)
    finally:
        if not quiet:
            _print(comparison)
    if comparison.failure is not None:
        raise comparison.failure


def _is_default(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.DEFAULT


def _choose_groups(
    groups: Groups | None,
    preset: str | None,
    served: ServedModel | None,
    recorded: Deployment | None,
) -> Groups:
    options = {"--groups": groups, "--preset": preset, "--model": served}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} and {given[1]} exclude each other")
    if served is not None:
        return served.groups
    if recorded is not None and not given:
        if recorded.groups is None:
            raise click.UsageError(
                "the recording does not tell its groups; give --groups, --preset or --model"
            )
        return recorded.groups
    return groups or preset_groups(preset or DEFAULT_PRESET)


def _choose_pool_sizes(
    context: click.Context, blocks: tuple[int, ...], served: ServedModel | None
) -> tuple[int, ...]:
    if served is None:
        return blocks
    are_given = not _is_default(context, "pool_sizes")
    if are_given and served.memories:
        raise click.UsageError("--blocks and --memory exclude each other")
    if not are_given and not served.memories:
        raise click.UsageError("--model needs --memory, or --blocks")
    return blocks if are_given else _checked_pool_sizes(served.pool_sizes)


def _write(
    comparison: Comparison,
    json_path: Path | None,
    per_request_path: Path | None,
    plot_path: Path | None,
    html_path: Path | None,
) -> None:
    if json_path is not None:
        with replacing(json_path) as stream:
            stream.write(json_document(comparison.record()))
    if per_request_path is not None:
        with replacing(per_request_path) as stream:
            stream.writelines(request_lines(comparison.outcomes))
    if plot_path is not None:
        with replacing(plot_path) as stream:
            save(_draw(comparison), stream, plot_path.suffix)
    if html_path is not None:
        with replacing(html_path) as stream:
            stream.write(replay_page(comparison))


def _print(comparison: Comparison) -> None:
    print_outcomes(comparison.outcomes, comparison.title)
    if len(comparison.settings.pool_sizes) > 1:
        print_hit_shares(comparison.hit_shares)
    print_serving(comparison.outcomes)
    if comparison.settings.fit is not None:
        click.echo(comparison.settings.fit.text)
    click.echo(comparison.duration)


def _draw(comparison: Comparison) -> "Figure":
    if len(comparison.settings.pool_sizes) > 1:
        return draw_hit_shares(comparison.hit_shares, comparison.title)
    return draw_trace(comparison.outcomes, comparison.title)
