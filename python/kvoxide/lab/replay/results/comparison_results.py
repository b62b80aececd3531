"""Describe a comparison as text and as a JSON value."""

from collections.abc import Iterable
from typing import Any

from kvoxide._core import __version__
from kvoxide.lab.replay.input import Groups, Host, TraceFile
from kvoxide.lab.replay.results.curves import HitShares, over_pool_size
from kvoxide.lab.replay.results.outcome_records import (
    RETENTION_COLUMNS,
    TIMELINE_COLUMNS,
    group_record,
    outcome_record,
    retention_record,
    timeline_record,
)
from kvoxide.lab.replay.results.time_records import serving_record, serving_settings_record
from kvoxide.lab.replay.run import Comparison, Settings
from kvoxide.lab.replay.setup import RECORDED


def comparison_hit_shares(comparison: Comparison) -> HitShares:
    """Return hit shares over the pool size."""
    return over_pool_size(comparison.outcomes, comparison.settings.pool_sizes)


def comparison_title(comparison: Comparison) -> str:
    """Return two lines of text: the trace, and the settings. A model is described in between."""
    settings, trace = comparison.settings, comparison.trace_file.trace
    sizes = ", ".join(f"{size:,}" for size in settings.pool_sizes)
    serving, arrivals = settings.serving, ""
    if settings.follows_schedule:
        arrivals = "; in the steps of the recorded server"
    elif serving is not None and serving.speed is not None:
        arrivals = "; arrivals at the trace's times"
        arrivals += ", in a closed loop" if serving.closed_loop else ""
    served = f"{settings.served.title}\n" if settings.served else ""
    return (
        f"{comparison.trace_file.name}: {len(trace):,} requests, {trace.num_prompt_tokens:,} prompt"
        f" tokens, {trace.num_output_tokens:,} output tokens;"
        f" format {trace.format}\n"
        f"{served}groups {settings.groups.text};"
        f" {hits_text(settings.hit_tokens, settings.groups, settings.hosts)}; pool of"
        f" {sizes} blocks; concurrency {settings.concurrency:,};"
        f" {settings.max_batched_tokens:,} tokens per step{arrivals}{_hosts_text(settings)}"
    )


def _hosts_text(settings: Settings) -> str:
    names = [host.name for host in settings.hosts if host is not None]
    return f"; CPU memory {', '.join(names)}" if names else ""


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """Return a JSON value of everything except single requests."""
    return {
        "kvoxide": __version__,
        "settings": _settings_record(comparison.settings),
        "trace": trace_record(comparison.trace_file),
        "timing": {
            "read_seconds": comparison.trace_file.read_seconds,
            "run_seconds": comparison.run_seconds,
        },
        "missing_runs": comparison.num_missing,
        "timeline_columns": TIMELINE_COLUMNS,
        "retention_columns": RETENTION_COLUMNS,
        "results": [
            {
                **outcome_record(outcome),
                "timeline": timeline_record(outcome),
                "retention": retention_record(outcome),
                "serving": None if outcome.is_bound else serving_record(outcome.result.serving),
            }
            for outcome in comparison.outcomes
        ],
    }


def hits_text(tokens: int | None, groups: Groups, hosts: Iterable[Host | None]) -> str:
    """Return a text on possible hits, whose lengths are multiples of ``tokens``. A load of several
    groups from CPU memory can also end before the last token of its prompt."""
    if tokens is None:
        return "prefix caching off"
    multiples = f"hits in multiples of {tokens:,} tokens"
    if any(hosts) and len(groups.specs) > 1:
        return f"{multiples}, or of all but the last token with CPU memory"
    return multiples


def _settings_record(settings: Settings) -> dict[str, Any]:
    return {
        "groups": settings.groups.text,
        "kv_cache_groups": [group_record(spec) for spec in settings.groups.specs],
        "prefix_caching": settings.prefix_caching,
        "hit_tokens": settings.hit_tokens,
        "blocks": list(settings.pool_sizes),
        "policies": [policy.name for policy in settings.policies],
        "left_out": list(settings.left_out),
        "concurrency": settings.concurrency,
        "max_batched_tokens": settings.max_batched_tokens,
        "bound": settings.has_bound,
        "model": settings.served.record() if settings.served else None,
        "serving": _serving_record(settings),
        "follows_schedule": settings.follows_schedule,
    }


def _serving_record(settings: Settings) -> dict[str, Any] | None:
    record = serving_settings_record(settings.serving, settings.fit)
    if record is not None and settings.follows_schedule:
        record |= {"arrivals": RECORDED, "speed": None}
    return record


def trace_record(file: TraceFile) -> dict[str, Any]:
    """Return a JSON value that describes a trace that was read."""
    return {
        "name": file.name,
        "format": file.trace.format,
        "notes": list(file.notes),
        "requests": len(file.trace),
        "prompt_tokens": file.trace.num_prompt_tokens,
        "output_tokens": file.trace.num_output_tokens,
        "tokens_per_id": file.trace.tokens_per_id,
        "requests_limit": file.limit,
        "skip_bad": file.skip_bad,
        "bad_lines": file.bad_lines,
        "first_bad_line": file.first_bad_line,
        "cut_off_files": file.cut_off_files,
        "returned_answers": file.returned_answers,
    }
