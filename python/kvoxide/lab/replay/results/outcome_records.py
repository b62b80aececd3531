"""Outcomes as JSON values: for ``--json``, ``--per-request`` and the experiments' rows."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kvoxide._core import KVCacheGroupSpec, group_kinds
from kvoxide.lab.replay.results.host_results import host_record
from kvoxide.lab.replay.results.time_records import request_moments
from kvoxide.lab.replay.run import Outcome

LOSSES = ("evicted_full", "evicted_tail", "never_cached", "first_time")
RETENTION_COLUMNS = [
    "requests_finished",
    "prompt_tokens",
    "hit_tokens",
    "in_use_share",
    "full_share",
    "tail_share",
    "evicted_last_share",
    "empty_share",
    "evicted_full_blocks",
    "evicted_tail_blocks",
    "scoring_function",
]
TIMELINE_COLUMNS = ["requests_finished", "used_share", "cached_share", "pinned_share"]


def group_record(spec: KVCacheGroupSpec) -> dict[str, Any]:
    """A KV cache group: its kind, and its block size and other sizes in tokens."""
    return {
        "kind": spec.kind,
        "block_size": spec.block_size,
        **{size: getattr(spec, size) for kind in group_kinds() for size in kind.required_sizes},
    }


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    """The counts of a run; tokens, blocks, shares from 0 to 1, times in seconds.

    What is about the pool is None for the unlimited run and for a bound, whose ``schedule_of`` is
    the policy of the run that it was found from.
    """
    result = outcome.result
    pool = _pool_record(outcome)
    return {
        "policy": outcome.run.policy.name,
        "blocks": outcome.run.pool_blocks,
        "schedule_of": outcome.schedule_of,
        "requests": result.requests,
        "rejected_requests": result.rejected_requests,
        "prompt_tokens": result.prompt_tokens,
        "generated_tokens": result.generated_tokens,
        "hit_tokens": outcome.hit_tokens,
        "hit_share": outcome.hit_share,
        "hit_answer_tokens": None if outcome.is_bound else result.hit_answer_tokens,
        **host_record(outcome),
        **_loss_record(outcome),
        "steps": result.steps,
        "wall_seconds": outcome.wall_seconds,
        **(pool if outcome.has_pool else dict.fromkeys(pool)),
    }


def timeline_record(outcome: Outcome) -> list[list[float]] | None:
    """Return samples over the run, or None for an outcome without a pool. The columns are
    :data:`TIMELINE_COLUMNS`."""
    rows: list[list[float]] = outcome.result.timeline.tolist()
    return rows if outcome.has_pool else None


def retention_record(outcome: Outcome) -> list[list[float | str | None]] | None:
    """Return what the pool retained over the run, or None for an outcome without a pool. The
    columns are :data:`RETENTION_COLUMNS`."""
    if not outcome.has_pool:
        return None
    result = outcome.result
    points = zip(result.retention_timeline.tolist(), result.scoring_functions, strict=True)
    return [[*row, function] for row, function in points]


def request_lines(outcomes: Sequence[Outcome]) -> Iterator[bytes]:
    """A JSON line per run and request of the trace, with lengths in tokens.

    ``hit_tokens``, and why it was not more, are null for a request that could never fit the pool
    and was skipped. Of a bound, only the sum over all requests is one. Where time passes, a line
    has its moments besides.
    """
    for outcome in outcomes:
        losses = outcome.result.losses_per_request.tolist()
        moments = request_moments(None if outcome.is_bound else outcome.result.serving)
        loaded = outcome.result.loaded_per_request.tolist()
        for index, row in enumerate(outcome.per_request.tolist()):
            prompt_tokens, output_tokens, hit_tokens, preemptions = row
            lost = None if outcome.is_bound or hit_tokens < 0 else losses[index]
            record = {
                "policy": outcome.run.policy.name,
                "blocks": outcome.run.pool_blocks,
                "index": index,
                "prompt_tokens": prompt_tokens,
                "output_tokens": output_tokens,
                "hit_tokens": None if hit_tokens < 0 else hit_tokens,
                **_host_fields(outcome, loaded[index]),
                "preemptions": preemptions,
                **{f"{loss}_tokens": tokens for loss, tokens in _by_loss(lost).items()},
                **(moments[index] if moments else {}),
            }
            yield json.dumps(record).encode() + b"\n"


def _host_fields(outcome: Outcome, loaded_tokens: int) -> dict[str, Any]:
    host = outcome.run.host
    if host is None:
        return {}
    loaded = None if loaded_tokens < 0 or outcome.is_bound else loaded_tokens
    return {"host_memory": host.name, "loaded_tokens": loaded}


def _loss_record(outcome: Outcome) -> dict[str, float | None]:
    return {f"{loss}_share": share for loss, share in _by_loss(outcome.loss_shares).items()}


def _by_loss(values: Sequence[float] | None) -> dict[str, float | None]:
    if values is None:
        return dict.fromkeys(LOSSES)
    return dict(zip(LOSSES, values, strict=True))


def _pool_record(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result
    return {
        "evictions": result.evictions,
        "preemptions": result.preemptions,
        "peak_used_blocks": result.peak_used_blocks,
        "peak_used_share": outcome.peak_used_share,
        "cached_blocks": result.cached_blocks,
        "schedule_seconds": _quantiles(result.schedule_seconds),
        "step_seconds": _quantiles(result.step_seconds),
    }


def _quantiles(seconds: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("p50", "p99", "max"), seconds, strict=True))
