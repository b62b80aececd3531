"""``kvoxide plan``: the cheapest combination that meets targets on a trace."""

import time
from functools import partial
from pathlib import Path

import click

from kvoxide._core import ConfigError, Trace
from kvoxide.lab.options import parsed_with
from kvoxide.lab.output.files import check_distinct, json_document, replacing
from kvoxide.lab.output.options import output_option, quiet_option
from kvoxide.lab.plan.candidate import candidates, gpus_of, pools_of
from kvoxide.lab.plan.report import Report
from kvoxide.lab.plan.search import Found, Search, search_cheapest
from kvoxide.lab.plan.target import Target, parse_targets
from kvoxide.lab.plan.uncertainty import Uncertainty
from kvoxide.lab.replay.input import DEFAULT_POLICY, NamedPolicy, read_deployment
from kvoxide.lab.replay.run import (
    Place,
    Run,
    SharedTrace,
    Workload,
    executor_at,
    on_option,
    playable_policies,
    progress_bar,
)
from kvoxide.lab.replay.serving import parse_router
from kvoxide.lab.replay.setup import (
    MAX_INSTANCES,
    HostOptions,
    Router,
    ServedModel,
    TimeOptions,
    TraceOptions,
    host_options,
    is_default,
    model_options,
    policies_option,
    recorded_options,
    scheduler_options,
    time_options,
    trace_options,
)

Routers = tuple[tuple[str, Router], ...]


def _parse_instances(text: str) -> tuple[int, ...]:
    """Return numbers of instances, smallest first, from a comma-separated text."""
    try:
        counts = {int(count) for count in text.split(",")}
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a number of instances; write one, or several with commas"
        ) from None
    for count in counts:
        if not 1 <= count <= MAX_INSTANCES:
            raise ConfigError(
                f"{count} instances are not possible; there can be 1 to {MAX_INSTANCES:,}"
            )
    return tuple(sorted(counts))


def _parse_routers(texts: tuple[str, ...]) -> Routers:
    for text in texts:
        if texts.count(text) > 1:
            raise ConfigError(f"the router {text!r} is given twice")
    return tuple((text, parse_router(text)) for text in texts)


@click.command()
@trace_options
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="TARGET",
    callback=parsed_with(parse_targets),
    help="A target to meet, such as 'ttft_p99<2s', 'itl_p90<50ms', 'hit_share>30%' or"
    " 'throughput>5000tok/s'. Repeat for several.",
)
@recorded_options
@model_options
@click.option(
    "--instances",
    default="1,2,4,8",
    show_default=True,
    metavar="N[,N...]",
    callback=parsed_with(_parse_instances),
    help="Numbers of instances to try. Each instance has its own pool and scheduler.",
)
@click.option(
    "--router",
    "routers",
    multiple=True,
    default=("round-robin", "prefix"),
    show_default="round-robin, prefix",
    metavar="ROUTER",
    callback=parsed_with(_parse_routers),
    help="How requests are distributed over several instances. Repeat to try several routers.",
)
@policies_option(DEFAULT_POLICY, "adaptive")
@scheduler_options
@host_options
@time_options("trace")
@on_option
@click.option(
    "--all",
    "plays_all",
    is_flag=True,
    help="Also try combinations that cost more than the cheapest.",
)
@output_option("--json", "FILE", "Write settings, figures and margins of all combinations.")
@quiet_option
def plan(
    source: TraceOptions,
    targets: tuple[Target, ...],
    served: ServedModel | None,
    prefix_caching: bool,
    instances: tuple[int, ...],
    routers: Routers,
    policies: tuple[NamedPolicy, ...],
    concurrency: int,
    max_batched_tokens: int,
    times: TimeOptions,
    host: HostOptions,
    place: Place | None,
    plays_all: bool,
    json_path: Path | None,
    quiet: bool,
) -> None:
    """Find the cheapest way to serve TRACE within targets.

    Tries combinations of memory, instances, routers, policies and CPU memory. The cheapest come
    first: the fewest GPUs, then the least memory of each GPU, then the least CPU memory. The exit
    code is 1 if no combination meets all targets. It is 3 if the error of fitted step times is too
    large to tell. If TRACE is the folder of a recorded server, its settings and step times are the
    defaults.
    """
    check_distinct(source.trace, [json_path])
    times.check()
    served = _required(served)
    pools, refusals = pools_of(served)
    scheduled = partial(
        Workload,
        groups=served.groups.specs,
        concurrency=concurrency,
        max_batched_tokens=max_batched_tokens,
        prefix_caching=prefix_caching,
    )
    hosts = host.hosts(served, read_deployment(source.trace), served.groups)
    if any(hosts) and not prefix_caching:
        raise click.UsageError("CPU memory needs prefix caching, which is disabled")
    nothing = scheduled(SharedTrace.of(Trace()))
    runs = (Run(nothing, policy, blocks) for policy in policies for _, blocks in pools)
    policies, _ = playable_policies(runs)
    file = source.read(quiet=quiet)
    times, note = times.for_sessions(file.trace, may_close=is_default("arrivals"))
    if note is not None and not quiet:
        click.echo(note, err=True)
    combinations = candidates(pools, instances, routers, policies, gpus_of(served), hosts)
    workload = scheduled(SharedTrace.of(file.trace))
    uncertainty = Uncertainty.of(times.fit)
    search = Search(combinations, targets, workload, times, plays_all, uncertainty)
    started = time.perf_counter()
    found = _played(search, place, quiet=quiet)
    seconds = time.perf_counter() - started
    report = Report(search, found, file, served, refusals, times.fit, seconds)
    try:
        if json_path is not None:
            with replacing(json_path) as stream:
                stream.write(json_document(report.record()))
    finally:
        if not quiet:
            report.print()
    report.require_met()


def _required(served: ServedModel | None) -> ServedModel:
    if served is None:
        raise click.UsageError("plan needs --model and --memory")
    if not served.memories:
        raise click.UsageError("plan needs --memory, such as 40GiB,60GiB,80GiB")
    return served


def _played(search: Search, place: Place | None, *, quiet: bool) -> Found:
    runs = search.runs()
    with executor_at(place) as executor, progress_bar(runs, quiet=quiet) as update:
        return search_cheapest(search, runs, executor, update)
