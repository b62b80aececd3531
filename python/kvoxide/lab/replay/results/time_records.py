"""Compute JSON values of the times of a replay."""

import math
from typing import Any

from kvoxide._core import InstanceResult, Serving, ServingResult
from kvoxide.lab.replay.serving import StepFit


def serving_settings_record(serving: Serving | None, fit: StepFit | None) -> dict[str, Any] | None:
    """How time passed, None where none did. Step times are in seconds."""
    if serving is None:
        return None
    time = serving.step_time
    return {
        "arrivals": _arrivals(serving),
        "speed": serving.speed,
        "step_time": {
            "base": time.base,
            "prefill": time.prefill,
            "context": time.context,
            "running": time.running,
        },
        "fit": fit and fit.record(),
        "instances": serving.instances,
        "router": serving.router,
        "weights": serving.weights,
        "as_recorded": serving.as_recorded,
    }


def _arrivals(serving: Serving) -> str:
    if serving.closed_loop:
        return "closed"
    return "full" if serving.speed is None else "trace"


def serving_record(result: ServingResult | None) -> dict[str, Any] | None:
    """Return times in seconds, for all instances together and for each."""
    if result is None:
        return None
    return {
        **_instance_record(result.total),
        "instances": [_instance_record(instance) for instance in result.instances],
    }


def request_moments(result: ServingResult | None) -> list[dict[str, Any]]:
    """The moments of each request in seconds since the first arrival, and its instance; nothing
    where no time passed. A request without a token has None."""
    if result is None:
        return []
    rows = zip(result.instance_of.tolist(), result.moments.tolist(), strict=True)
    return [
        {
            "instance": instance,
            "arrival": arrived,
            "first_token": None if math.isnan(first) else first,
            "last_token": None if math.isnan(last) else last,
        }
        for instance, (arrived, first, last) in rows
    ]


def _instance_record(result: InstanceResult) -> dict[str, Any]:
    makespan = result.makespan_seconds
    return {
        "requests": result.requests,
        "prompt_tokens": result.prompt_tokens,
        "generated_tokens": result.generated_tokens,
        "hit_tokens": result.hit_tokens,
        "hit_share": result.hit_tokens / max(1, result.prompt_tokens),
        "preemptions": result.preemptions,
        "evictions": result.evictions,
        "steps": result.steps,
        "makespan": makespan,
        "utilisation": result.utilisation,
        "running_requests": result.running_requests,
        "requests_per_second": _rate(result.requests, makespan),
        "prompt_tokens_per_second": _rate(result.prompt_tokens, makespan),
        "generated_tokens_per_second": _rate(result.generated_tokens, makespan),
        "time_to_first_token": _quantiles(result.time_to_first_token),
        "time_between_tokens": _quantiles(result.time_between_tokens),
    }


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if seconds > 0 else None


def _quantiles(seconds: tuple[float, float, float] | None) -> dict[str, float] | None:
    return None if seconds is None else dict(zip(("p50", "p90", "p99"), seconds, strict=True))
