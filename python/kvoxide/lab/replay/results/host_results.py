"""Tables and sentences on CPU memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kvoxide._core import HostMemoryResult, KVCacheGroupSpec
from kvoxide.lab.output.tables import Column, Table, print_table
from kvoxide.lab.replay.input import Host, memory_text
from kvoxide.lab.replay.run import Outcome

_GB: Final = 1e9

Cell = Callable[[Outcome, HostMemoryResult], str]


def print_host_memory(outcomes: Sequence[Outcome]) -> None:
    """Print the table of :func:`host_tables`, and what it shows."""
    for table in host_tables(outcomes):
        print_table(*table)
    for note in host_notes(outcomes):
        print(note)


def host_tables(outcomes: Sequence[Outcome]) -> Iterator[Table]:
    """Yield a table with a line per run with CPU memory; nothing without such runs."""
    rows = list(_with_host(outcomes))
    if not rows:
        return
    keys = [Column("policy", [o.name for o, _ in rows], is_name=True)]
    if len({o.run.blocks for o, _ in rows}) > 1:
        keys.append(Column("pool\nblocks", [f"{o.run.blocks or 0:,}" for o, _ in rows]))
    cells = {**_FIGURES, **(_TIMES if any(o.result.serving for o, _ in rows) else {})}
    columns = [Column(header, [cell(o, r) for o, r in rows]) for header, cell in cells.items()]
    yield Table("CPU memory", keys, columns)


def host_notes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield sentences on runs with CPU memory: sizes that bring little, and slow links."""
    for outcome, _ in _with_host(outcomes):
        if (note := _size_note(outcome)) is not None:
            yield f"{outcome.name}: {note}"
    speeds = [(speed, o.name) for o, _ in _with_host(outcomes) if (speed := pays_above(o))]
    if speeds:
        speed, name = max(speeds)
        yield (
            f"{name}: a load takes less time than computing the same tokens above"
            f" {speed / _GB:,.2f} GB/s"
        )


def pays_above(outcome: Outcome) -> float | None:
    """Return the bandwidth in bytes per second at which a load takes as long as computing what it
    brings; None without loads or without times."""
    result, serving = outcome.result.host_memory, outcome.run.workload.serving
    if result is None or serving is None or not result.all_loaded_tokens:
        return None
    seconds = result.all_loaded_tokens * serving.step_time.prefill
    loaded = result.loaded_chunks * result.chunk_bytes
    return loaded / seconds if seconds > 0 else None


def host_settings_record(host: Host) -> dict[str, Any]:
    """Return CPU memory and its settings as a JSON value; None for a setting without effect."""
    memory = host.memory
    names = (
        "num_chunks",
        "chunk_bytes",
        "eviction_policy",
        "store_threshold",
        "offload_prompt_only",
        "load_bandwidth",
        "load_latency",
        "store_bandwidth",
        "store_latency",
    )
    record = {"name": host.name, **{name: getattr(memory, name) for name in names}}
    if memory.eviction_policy == "adaptive":
        record |= dict.fromkeys(("store_threshold", "offload_prompt_only"))
    return record


def host_record(outcome: Outcome) -> dict[str, Any]:
    """Return the counts of CPU memory as fields of an outcome's JSON value; none without it."""
    run, result = outcome.run, outcome.result.host_memory
    if run.host is None:
        return {}
    memory, settings = run.host.memory, host_settings_record(run.host)
    if run.is_joined:
        size = {name: settings[name] for name in ("name", "num_chunks", "chunk_bytes")}
        return {"host_memory": size, "is_one_pool": True}
    if result is None or outcome.is_bound:
        return {"host_memory": settings, "is_one_pool": False}
    counts = {
        "loaded_tokens": outcome.result.loaded_tokens,
        "loaded_share": outcome.loaded_share,
        "stored_bytes": result.stored_chunks * memory.chunk_bytes,
        "loaded_bytes": result.loaded_chunks * memory.chunk_bytes,
        "never_loaded_bytes": result.never_loaded_chunks * memory.chunk_bytes,
        "pays_above_bandwidth": pays_above(outcome),
        **{name: getattr(result, name) for name in _COUNTS},
    }
    return {"host_memory": settings | counts, "is_one_pool": False}


_COUNTS: Final = (
    "stored_chunks",
    "stored_tail_chunks",
    "loads",
    "all_loaded_tokens",
    "loaded_chunks",
    "loaded_chunks_in_pool",
    "evicted_chunks",
    "never_loaded_chunks",
    "refused_offers",
    "skipped_chunks",
    "held_twice_share",
    "without_tail_tokens",
    "store_seconds",
    "load_seconds",
    "fence_seconds",
)


def _with_host(outcomes: Sequence[Outcome]) -> Iterator[tuple[Outcome, HostMemoryResult]]:
    for outcome in outcomes:
        result = outcome.result.host_memory
        if result is not None and not outcome.is_bound:
            yield outcome, result


def _size_note(outcome: Outcome) -> str | None:
    host = outcome.run.host
    if host is None:
        return None
    longest = int(outcome.result.per_request[:, 0].max(initial=0))
    return size_note(host, outcome.run.blocks or 0, longest, outcome.run.workload.groups)


def size_note(
    host: Host, blocks: int, longest: int, groups: Sequence[KVCacheGroupSpec]
) -> str | None:
    """Return why CPU memory of this size brings little under vLLM's policies, if it does. The pool
    has ``blocks`` blocks, and the longest prompt ``longest`` tokens."""
    num_chunks = host.memory.num_chunks
    if host.memory.eviction_policy == "adaptive":
        return None
    needed = sum(
        longest // spec.block_size
        for spec in groups
        if spec.sliding_window is None and not spec.kind.startswith("mamba")
    )
    if num_chunks < needed:
        return (
            f"the longest prompt has {needed:,} full blocks, and CPU memory has room for"
            f" {num_chunks:,}. It cannot hold such a prompt; use more CPU memory"
        )
    if num_chunks < blocks:
        return (
            f"CPU memory has {num_chunks:,} blocks, fewer than the pool of {blocks:,}. vLLM stores"
            " what the pool holds too, so it mostly holds copies; use at least twice the pool"
        )
    return None


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "-"


_FIGURES: Final[dict[str, Cell]] = {
    "size": lambda _, r: memory_text(r.num_chunks * r.chunk_bytes),
    "blocks": lambda _, r: f"{r.num_chunks:,}",
    "hit on\nGPU": lambda o, _: f"{o.hit_share - (o.loaded_share or 0.0):.2%}",
    "hit on\nCPU": lambda o, _: f"{o.loaded_share or 0.0:.2%}",
    "stored\nGB": lambda _, r: f"{r.stored_chunks * r.chunk_bytes / _GB:,.2f}",
    "loaded\nGB": lambda _, r: f"{r.loaded_chunks * r.chunk_bytes / _GB:,.2f}",
    "never\nloaded": lambda _, r: _share(r.never_loaded_chunks, r.evicted_chunks),
    "held\ntwice": lambda _, r: "-" if (t := r.held_twice_share) is None else f"{t:.2%}",
    "without\ntail": lambda o, r: _share(r.without_tail_tokens, o.result.prompt_tokens),
    "offers\nrefused": lambda _, r: f"{r.refused_offers:,}",
}
_TIMES: Final[dict[str, Cell]] = {
    "loads\ns": lambda _, r: f"{r.load_seconds:,.2f}",
    "stores\ns": lambda _, r: f"{r.store_seconds:,.2f}",
    "waits\ns": lambda _, r: f"{r.fence_seconds:,.2f}",
    "pays above\nGB/s": lambda o, _: "-" if (s := pays_above(o)) is None else f"{s / _GB:,.2f}",
}
