"""The head of a page: what was played and how, and the figures that say it all."""

from collections.abc import Iterator, Sequence

from kvoxide._core import Serving
from kvoxide.lab.replay.input import CLAIRVOYANT, UNLIMITED
from kvoxide.lab.replay.page.document import Tile
from kvoxide.lab.replay.results import hits_text, timed_outcomes
from kvoxide.lab.replay.run import Comparison, Incomplete, Outcome, Settings

# The least unit in which a part of a step's time is at least 1.
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))


def facts(comparison: Comparison) -> dict[str, Sequence[str]]:
    """Names and lines of text, in the order in which they are read."""
    settings, file = comparison.settings, comparison.trace_file
    trace = file.trace
    lengths = (
        f"{len(trace):,} requests, {trace.num_prompt_tokens:,} prompt tokens,"
        f" {trace.num_output_tokens:,} output tokens"
    )
    found: dict[str, Sequence[str]] = {"Trace": [file.name, lengths], "Format": [f"{trace.format}"]}
    if file.notes:
        found["Notes"] = file.notes
    if file.limit is not None:
        found["Limit"] = [f"the first {file.limit:,} requests"]
    if file.bad_lines:
        found["Bad lines"] = [f"{file.bad_lines:,}; {file.first_bad_line}"]
    if file.cut_off_files:
        found["Files that end too early"] = [f"{file.cut_off_files:,}"]
    if file.answers_note is not None:
        found["Answers"] = [file.answers_note]
    if settings.served is not None:
        found["Model"] = settings.served.title.splitlines()

    hits = hits_text(settings.hit_tokens, settings.groups, settings.hosts)
    found["Groups"] = [settings.groups.text, hits]
    if settings.left_out:
        found["Left out"] = settings.left_out
    found["Pool"] = [", ".join(f"{size:,}" for size in settings.pool_sizes) + " blocks"]
    if any(settings.hosts):
        found["CPU memory"] = list(_hosts(settings))
    found["Scheduler"] = [
        f"{settings.concurrency:,} requests at a time,"
        f" {settings.max_batched_tokens:,} tokens per step"
    ]
    if settings.serving is not None:
        found["Clock"] = list(_clock(settings.serving))
        if settings.serving.instances > 1:
            found["Instances"] = [f"{settings.serving.instances:,}, {_router(settings.serving)}"]
    if settings.fit is not None:
        found["Fit"] = settings.fit.text.splitlines()
    return {**found, **missing(comparison.num_missing, comparison.failure)}


def missing(num_runs: int, failure: Incomplete | None) -> dict[str, Sequence[str]]:
    """That runs are missing from a page, and why; empty where none is."""
    if failure is None:
        return {}
    return {"Missing": [f"{num_runs:,} run{'s' if num_runs > 1 else ''}", str(failure)]}


def tiles(comparison: Comparison) -> Iterator[Tile]:
    """The highest hit share, what it is compared with, and the shortest wait where a clock runs."""
    pools = list(_real_pools(comparison))
    best = max(pools, key=lambda outcome: outcome.hit_share, default=None)
    if best is not None:
        yield Tile("Highest hit share", f"{best.hit_share:.2%}", _where(best))
    for outcome in comparison.outcomes:
        total = None if best is None else best.run.blocks_of_both
        if total is not None and outcome.is_bound and outcome.run.pool_blocks == total:
            note = f"upper bound for a pool of {total:,} blocks"
            yield Tile(CLAIRVOYANT.capitalize(), f"{outcome.hit_share:.2%}", note)
        if outcome.is_unlimited:
            yield Tile(
                UNLIMITED.capitalize(), f"{outcome.hit_share:.2%}", "a pool that never evicts"
            )
    waits = [
        (result.total.time_to_first_token[1], outcome)
        for outcome, result in timed_outcomes(pools)
        if result.total.time_to_first_token is not None
    ]
    if waits:
        seconds, fastest = min(waits, key=lambda wait: wait[0])
        yield Tile("First token, p90", f"{seconds:,.3f} s", f"shortest: {_where(fastest)}")


def _real_pools(comparison: Comparison) -> Iterator[Outcome]:
    """Yield the runs that a server could do and that reject the fewest requests."""
    pools = [o for o in comparison.outcomes if o.has_pool and not o.run.is_joined]
    fewest = min((o.result.rejected_requests for o in pools), default=0)
    return (o for o in pools if o.result.rejected_requests == fewest)


def _where(outcome: Outcome) -> str:
    return f"{outcome.name}, {outcome.run.blocks or 0:,} blocks"


def _hosts(settings: Settings) -> Iterator[str]:
    """Yield the sizes with their policies, and the link if transfers take time."""
    hosts = [host for host in settings.hosts if host is not None]
    yield ", ".join(host.name for host in hosts)
    if settings.serving is None:
        return
    memory = hosts[0].memory
    for verb, bandwidth, latency in (
        ("load", memory.load_bandwidth, memory.load_latency),
        ("store", memory.store_bandwidth, memory.store_latency),
    ):
        yield f"a {verb} takes {_duration(latency)} and its bytes at {bandwidth / 1e9:.4g} GB/s"


def _clock(serving: Serving) -> Iterator[str]:
    if serving.speed is None:
        yield "a request arrives as soon as it can run"
    else:
        loop = ", turns of sessions after the answers before them" if serving.closed_loop else ""
        yield f"requests arrive at the trace's times{loop}, at speed {serving.speed:g}"
    time = serving.step_time
    parts = ("base", "prefill", "context", "running")
    yield "a step takes " + ", ".join(f"{part} {_duration(getattr(time, part))}" for part in parts)


def _duration(seconds: float) -> str:
    least, unit = next((least, unit) for least, unit in _UNITS if seconds >= least)
    return f"{seconds / (least or 1e-9):.4g} {unit}"


def _router(serving: Serving) -> str:
    weights = ", ".join(f"{name} {weight:g}" for name, weight in (serving.weights or {}).items())
    return f"router {serving.router}" + (f" ({weights})" if weights else "")
