"""``kvoxide replay``: a trace through the manager, once per policy and pool size."""

from dataclasses import replace
from typing import Final

import click

from kvoxide.lab.options import gathered, parsed_with
from kvoxide.lab.output.options import html_option, output_option, plot_option, quiet_option
from kvoxide.lab.replay.cli.result_files import ResultFiles
from kvoxide.lab.replay.input import (
    DEFAULT_POLICY,
    KINDS,
    PRESETS,
    NamedPolicy,
    parse_groups,
    read_deployment,
)
from kvoxide.lab.replay.results import (
    comparison_hit_shares,
    comparison_title,
    print_hit_shares,
    print_outcomes,
    print_serving,
)
from kvoxide.lab.replay.run import Comparison, Place, Settings, compare, on_option
from kvoxide.lab.replay.setup import (
    AS_RECORDED,
    DEFAULT_BLOCKS,
    DEFAULT_PRESET,
    RECORDED,
    LimitOptions,
    Router,
    ServedModel,
    TimeOptions,
    TraceOptions,
    instance_options,
    is_default,
    model_options,
    parse_pool_sizes,
    policies_option,
    recorded_options,
    scheduler_options,
    time_options,
    trace_options,
)

_NO_SCHEDULE: Final = (
    "the trace has no steps of one server that can be followed; requests arrive at the trace's"
    " times"
)
_RECORDED_TIMES: Final = (
    "steps take as long as they took on the server; step times are only for work that differs"
)
_NO_TIMES: Final = (
    "no times are shown: the recorded durations do not match the recorded steps, perhaps because"
    " files are missing; --arrivals trace models the times"
)


@click.command()
@trace_options
@click.option(
    "--groups",
    metavar="GROUPS",
    callback=parsed_with(parse_groups),
    help="KV cache groups as kind:block_size[:window][*count], comma separated, such as"
    f" full:16,swa:16:1024*5. Kinds are {', '.join(KINDS)}.",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help=f"The groups of a known model instead.  [default: {DEFAULT_PRESET}]",
)
@recorded_options
@model_options
@click.option(
    "--blocks",
    "pool_sizes",
    metavar="N[,N...]",
    default=DEFAULT_BLOCKS,
    show_default=True,
    callback=parsed_with(parse_pool_sizes),
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
@gathered("given", LimitOptions)
@gathered("files", ResultFiles)
def replay(
    source: TraceOptions,
    given: LimitOptions,
    served: ServedModel | None,
    prefix_caching: bool,
    policies: tuple[NamedPolicy, ...],
    has_bound: bool,
    times: TimeOptions,
    instances: int,
    router: Router | None,
    place: Place | None,
    files: ResultFiles,
    quiet: bool,
) -> None:
    """Play TRACE through the manager as vLLM's scheduler would.

    TRACE is JSONL in Mooncake's format or with prompt_token_ids and output_length; plain, gzip
    or zstd. A single - is standard input; without TRACE, or with the word sample, it is the
    trace that comes with kvoxide. The folder that a server recorded to is played on what that
    server had, at its arrivals and with its step times, as far as no option says otherwise.

    There is one run for every policy and pool size. The line "unlimited" is what a pool that
    never evicts would hit.
    """
    files.check(source.trace)
    recorded = read_deployment(source.trace)
    if recorded is not None and is_default("instances") and recorded.num_ranks > 1:
        instances = recorded.num_ranks
        router = router or AS_RECORDED
    follows = times.arrivals == RECORDED
    if follows and (recorded is None or not recorded.has_schedule):
        raise click.UsageError(
            "--arrivals recorded needs the recording of a server, with its steps (format 2)"
        )
    if has_bound and instances > 1:
        raise click.UsageError("--bound is for one instance")
    if has_bound and not prefix_caching:
        raise click.UsageError("--bound needs prefix caching, which is off")
    limits = given.limits(served, recorded)
    wanted = Settings(
        limits.groups,
        limits.pool_sizes,
        policies,
        limits.concurrency,
        limits.max_batched_tokens,
        has_bound=has_bound,
        served=served,
        serving=times.serving(instances, router),
        fit=times.fit,
        follows_schedule=follows,
        rules=recorded.rules if recorded and limits.groups == recorded.groups else None,
        prefix_caching=prefix_caching,
    )
    settings = wanted.playable()
    file = source.read(quiet=quiet)
    if settings.follows_schedule and not file.trace.has_schedule:
        settings = replace(settings, follows_schedule=False)
        if not quiet:
            click.echo(_NO_SCHEDULE, err=True)
    comparison = compare(settings, file, place, quiet=quiet)
    try:
        files.write(comparison)
    finally:
        if not quiet:
            _print(comparison)
    if comparison.failure is not None:
        raise comparison.failure


def _print(comparison: Comparison) -> None:
    print_outcomes(comparison.outcomes, comparison_title(comparison))
    if len(comparison.settings.pool_sizes) > 1:
        print_hit_shares(comparison_hit_shares(comparison))
    print_serving(comparison.outcomes)
    if comparison.takes_recorded_times:
        click.echo(_RECORDED_TIMES if comparison.has_times else _NO_TIMES)
    if comparison.settings.fit is not None:
        click.echo(comparison.settings.fit.text)
    click.echo(comparison.duration)
