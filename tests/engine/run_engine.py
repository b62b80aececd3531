"""Serves the workloads of a job with an engine in this process, and writes its visible behaviour.

``python -m tests.engine.run_engine OUTCOME`` reads the job from standard input. This program steps
the engine, one call after the other. So two runs of one job can only differ by their managers.
"""

import json
import sys
import time
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import vllm
from vllm import EngineArgs, SamplingParams
from vllm.config import KVEventsConfig
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.engine.llm_engine import LLMEngine

from .outcome import Outcome, Played
from .workload import PlannedRequest, Workload, plan

msgspec = import_module("msgspec")

COUNTED = (
    "vllm:prefix_cache",
    "vllm:external_prefix_cache",
    "vllm:kv_offload_load_bytes",
    "vllm:kv_offload_store_bytes",
    "vllm:num_preemptions",
    "vllm:spec_",
)


def main() -> None:
    job = json.load(sys.stdin)
    start = time.perf_counter()
    engine = start_engine(job["engine"], job["async_scheduling"])
    played = [Player(engine, Workload(**workload)).play() for workload in job["workloads"]]
    outcome = Outcome(
        release=vllm.__version__.partition("+")[0],
        manager=class_name(scheduler_of(engine).kv_cache_manager),
        scheduler=class_name(scheduler_of(engine)),
        host=host_manager(scheduler_of(engine)),
        played=played,
        seconds=time.perf_counter() - start,
    )
    Path(sys.argv[1]).write_text(json.dumps(outcome, default=vars))


def start_engine(options: dict[str, Any], async_scheduling: bool) -> Any:
    arguments = EngineArgs(
        **options,
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
        disable_log_stats=False,
        skip_tokenizer_init=True,
        async_scheduling=async_scheduling,
    )
    with async_scheduling_kept():
        return LLMEngine.from_engine_args(arguments)


def async_scheduling_kept() -> AbstractContextManager[Any]:
    """Return a context in which async scheduling stays on. The CPU platform has no use for it and
    switches it off, but can run it."""
    update = CpuPlatform.check_and_update_config

    def update_and_keep(config: Any) -> None:
        wanted = config.scheduler_config.async_scheduling
        update(config)
        config.scheduler_config.async_scheduling = wanted

    return patch.object(CpuPlatform, "check_and_update_config", staticmethod(update_and_keep))


def scheduler_of(engine: Any) -> Any:
    return engine.engine_core.engine_core.scheduler


def host_manager(scheduler: Any) -> str | None:
    connector = scheduler.connector
    return None if connector is None else class_name(connector.connector_scheduler.manager)


def class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def counters(engine: Any) -> dict[str, float]:
    return {
        metric.name.removeprefix("vllm:"): metric.value
        for metric in engine.get_metrics()
        if hasattr(metric, "value") and metric.name.startswith(COUNTED)
    }


class Player:
    """Plays one workload on an engine."""

    def __init__(self, engine: Any, workload: Workload) -> None:
        self.engine = engine
        self.workload = workload
        self.waiting = plan(workload)
        self.running: dict[str, PlannedRequest] = {}
        self.conversations: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.played = Played()
        scheduler = scheduler_of(engine)
        scheduler.kv_event_publisher = EventRecorder(self.played.events)
        scheduler.schedule = recorded(type(scheduler).schedule, scheduler, self.played.steps)

    def play(self) -> Played:
        step = 0
        while self.waiting or self.engine.has_unfinished_requests():
            self.submit(step)
            self.abort()
            self.reset(step)
            for output in self.engine.step():
                self.receive(output)
            step += 1
        self.played.resets.append(self.engine.reset_prefix_cache())
        self.played.counters = counters(self.engine)
        return self.played

    def submit(self, step: int) -> None:
        for request in [each for each in self.waiting if self.is_due(each, step)]:
            self.waiting.remove(request)
            self.running[request.name] = request
            before = self.conversations[request.follows] if request.follows else []
            self.conversations[request.name] = before + request.tokens
            self.engine.add_request(
                request.name,
                prompt(before + request.tokens, request.cache_salt),
                greedy(request.max_tokens),
                priority=request.priority,
            )

    def is_due(self, request: PlannedRequest, step: int) -> bool:
        ready = request.follows is None or request.follows in self.ended
        return ready and request.step <= step

    def abort(self) -> None:
        for name, request in list(self.running.items()):
            seen = self.played.requests.get(name)
            if (
                request.abort_after is not None
                and seen
                and len(seen["tokens"]) > request.abort_after
            ):
                self.engine.abort_request([name])
                self.end(name)

    def reset(self, step: int) -> None:
        every = self.workload.reset_every
        if every is not None and step % every == every - 1:
            preempt = step // every % 2 == 1
            granted = self.engine.reset_prefix_cache(reset_running_requests=preempt)
            self.played.resets.append(granted)

    def receive(self, output: Any) -> None:
        self.played.requests[output.request_id] = {
            "tokens": list(output.outputs[0].token_ids),
            "cached": output.num_cached_tokens,
        }
        if output.finished:
            self.end(output.request_id)

    def end(self, name: str) -> None:
        del self.running[name]
        self.ended.add(name)
        self.conversations[name] += self.played.requests[name]["tokens"]


def prompt(tokens: list[int], cache_salt: str | None) -> dict[str, Any]:
    salt = {} if cache_salt is None else {"cache_salt": cache_salt}
    return {"prompt_token_ids": tokens, **salt}


def greedy(max_tokens: int) -> Any:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)


class EventRecorder:
    """Takes the place of the scheduler's publisher of KV events."""

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    def publish(self, batch: Any) -> None:
        self.events.append(msgspec.to_builtins(batch.events))

    def shutdown(self) -> None:
        pass

    def get_publisher_config(self) -> None:
        return None


def recorded(schedule: Any, scheduler: Any, steps: list[Any]) -> Any:
    def schedule_and_record(*args: Any, **kwargs: Any) -> Any:
        output = schedule(scheduler, *args, **kwargs)
        steps.append(described(output))
        return output

    return schedule_and_record


def described(output: Any) -> dict[str, Any]:
    """Return what a step schedules, and the blocks that it allocates, copies and zeroes for each
    request."""
    going_on = output.scheduled_cached_reqs
    return {
        "num_tokens": output.num_scheduled_tokens,
        "started": {each.req_id: blocks(each.block_ids) for each in output.scheduled_new_reqs},
        "continued": {
            name: blocks(ids)
            for name, ids in zip(going_on.req_ids, going_on.new_block_ids, strict=True)
        },
        "preempted": sorted(output.preempted_req_ids or ()),
        "to_zero": output.new_block_ids_to_zero,
        "copies": [list(copy) for copy in output.kv_cache_block_copies or ()],
    }


def blocks(ids_by_group: Any) -> list[list[int]] | None:
    return None if ids_by_group is None else [list(ids) for ids in ids_by_group]


if __name__ == "__main__":
    main()
