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
    print_host_memory,
    print_outcomes,
    print_serving,
)
from kvoxide.lab.replay.run import Comparison, Place, Settings, compare, on_option
from kvoxide.lab.replay.setup import (
    AS_RECORDED,
    DEFAULT_BLOCKS,
    DEFAULT_PRESET,
    FULL,
    RECORDED,
    HostOptions,
    LimitOptions,
    Router,
    ServedModel,
    TimeOptions,
    TraceOptions,
    host_options,
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
    "the trace has no steps of a single server to follow; requests arrive at the trace's times"
)
_RECORDED_TIMES: Final = (
    "steps take as long as on the server; the step times are used only for work that differs"
)
_NO_TIMES: Final = (
    "no times are shown: the recorded durations do not match the recorded steps, and files may be"
    " missing. Use --arrivals trace to model the times"
)


@click.command()
@trace_options
@click.option(
    "--groups",
    metavar="GROUPS",
    callback=parsed_with(parse_groups),
    help="KV cache groups as kind:block_size[:window][*count], separated by commas, such as"
    f" full:16,swa:16:1024*5. Kinds: {', '.join(KINDS)}.",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help=f"Use the groups of a known model.  [default: {DEFAULT_PRESET}]",
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
    help="Pool size in blocks. Several sizes show the hit share for each size.",
)
@policies_option(DEFAULT_POLICY)
@scheduler_options
@click.option(
    "--bound",
    "has_bound",
    is_flag=True,
    help='Add the line "clairvoyant": the hit share of a policy that knows the future.',
)
@host_options
@time_options()
@instance_options
@on_option
@output_option("--json", "FILE", "Write settings, counts and times of all runs.")
@output_option("--per-request", "FILE.jsonl", "Write one line per run and request.")
@plot_option(
    "Plot hit share and occupancy over the trace, or the hit share over several pool sizes."
)
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
    host: HostOptions,
    instances: int,
    router: Router | None,
    place: Place | None,
    files: ResultFiles,
    quiet: bool,
) -> None:
    """Replay TRACE through the manager as vLLM's scheduler would.

    TRACE is a file in one of the formats that `kvoxide formats` lists, plain or compressed. A
    single - is standard input. Without TRACE, or with the word sample, the trace that comes with
    kvoxide is replayed. If TRACE is the folder of a recorded server, its settings, arrivals and
    step times are the defaults.

    There is one run for each policy, pool size and size of CPU memory. The line "unlimited" has the
    hit share of a pool that never evicts. With CPU memory, lines "one pool" have the hit share of a
    pool with the blocks of both.
    """
    files.check(source.trace)
    recorded = read_deployment(source.trace)
    if recorded is not None and is_default("instances") and recorded.num_ranks > 1:
        instances = recorded.num_ranks
        router = router or AS_RECORDED
    follows = times.arrivals == RECORDED
    if follows and (recorded is None or not recorded.has_schedule):
        raise click.UsageError(
            "--arrivals recorded needs the recording of a server with steps (format 2)"
        )
    if has_bound and instances > 1:
        raise click.UsageError("--bound works only with one instance")
    if has_bound and not prefix_caching:
        raise click.UsageError("--bound needs prefix caching, which is disabled")
    limits = given.limits(served, recorded)
    hosts = host.hosts(served, recorded, limits.groups)
    if any(hosts) and not prefix_caching:
        raise click.UsageError("CPU memory needs prefix caching, which is disabled")
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
        hosts=hosts,
    )
    settings = wanted.playable()
    file = source.read(quiet=quiet)
    may_close = times.arrivals == FULL and is_default("arrivals")
    times, note = times.for_sessions(file.trace, may_close=may_close)
    if note is not None:
        settings = replace(settings, serving=times.serving(instances, router))
        if not quiet:
            click.echo(note, err=True)
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
    print_host_memory(comparison.outcomes)
    print_serving(comparison.outcomes)
    if comparison.takes_recorded_times:
        click.echo(_RECORDED_TIMES if comparison.has_times else _NO_TIMES)
    if comparison.settings.fit is not None:
        click.echo(comparison.settings.fit.text)
    click.echo(comparison.duration)
