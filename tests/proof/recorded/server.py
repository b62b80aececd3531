"""A random server: vLLM's own schedulers, one for each rank, and code that replaces the model."""

import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from kvoxide.lab.verify.managers.driver import NewRequest
from kvoxide.lab.verify.managers.scenarios import DEFAULT_FAMILIES
from kvoxide.lab.verify.schedulers import side as side_module
from kvoxide.lab.verify.schedulers.clients import Clients, name_of
from kvoxide.lab.verify.schedulers.configuration import make_vllm_config
from kvoxide.lab.verify.schedulers.plan import Plan, random_plan
from kvoxide.lab.verify.schedulers.side import MANAGERS, Side
from kvoxide.lab.verify.schedulers.worker import Worker, num_drafts_of
from kvoxide.vllm.environment.settings import Settings, using
from kvoxide.vllm.recording import take_over
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.request import RequestStatus

STEPS = 250
POLICIES = (
    Settings(mode="off"),
    Settings(),
    Settings(retention="adaptive"),
    Settings(pin_min_drop_size=4),
)


@dataclass(frozen=True)
class Counted:
    """The counts of a server's schedulers: hits of each rank in tokens, and the number of each
    event."""

    plan: Plan
    policy: str
    hits: tuple[int, ...]
    queries: tuple[int, ...]
    seen: Counter[str]

    @property
    def text(self) -> str:
        """The server in one line of text."""
        scenario = self.plan.scenario
        groups = "+".join(f"{group.kind}:{group.block_size}" for group in scenario.groups)
        how = [self.plan.policy, self.policy, f"{len(self.hits)} ranks"]
        how += ["async"] * self.plan.is_async + ["drafts"] * (self.plan.num_spec_tokens > 0)
        return f"{groups}, {scenario.num_blocks} blocks; {', '.join(how)}"


def serve(seed: int, folder: Path, num_steps: int = STEPS) -> Counted:
    """Record a server to ``folder`` and return what it counted."""
    with recorded_scheduler():
        return _serve(seed, folder, num_steps)


@contextmanager
def recorded_scheduler() -> Iterator[None]:
    """Wrap vLLM's scheduler as the plugin does, and restore it at the end."""
    scheduler = scheduler_module.Scheduler
    before = dict(vars(scheduler))
    take_over(scheduler_module)
    try:
        yield
    finally:
        for name, value in dict(vars(scheduler)).items():
            if name not in before:
                delattr(scheduler, name)
            elif value is not before[name]:
                setattr(scheduler, name, before[name])


def _serve(seed: int, folder: Path, num_steps: int) -> Counted:
    rng = random.Random(f"recorded {seed}")
    plan = replace(random_plan(seed, DEFAULT_FAMILIES), connector=False, log_stats=True)
    plan = replace(plan, scenario=replace(plan.scenario, enable_caching=True))
    policy = POLICIES[seed % len(POLICIES)]
    ranks = []
    with mock.patch.dict(os.environ, {"KVOXIDE_RECORD": str(folder)}), using(policy):
        for rank in range(rng.choice((1, 1, 2, 3))):
            with _rank(rank):
                ranks.append(_Rank(replace(plan, seed=plan.seed + 1000 * rank), policy))
    for _ in range(num_steps):
        for each in ranks:
            each.run_step()
    for each in ranks:
        each.stop()
    seen = sum((each.seen for each in ranks), Counter[str]())
    hits = tuple(each.hits for each in ranks)
    queries = tuple(each.queries for each in ranks)
    name = "vllm" if policy.mode == "off" else _name(policy)
    return Counted(plan, name, hits, queries, seen)


def _name(policy: Settings) -> str:
    if policy.pin_min_drop_size is not None:
        return f"pin={policy.pin_min_drop_size}"
    return policy.retention


@contextmanager
def _rank(rank: int) -> Iterator[None]:
    original = make_vllm_config

    def made(plan: Plan) -> Any:
        config = original(plan)
        config.parallel_config.data_parallel_index = rank
        return config

    with mock.patch.object(side_module, "make_vllm_config", made):
        yield


class _Rank:
    """One scheduler with its clients and its worker."""

    def __init__(self, plan: Plan, policy: Settings) -> None:
        self._plan = plan
        self._rng = random.Random(f"traffic {plan.seed}")
        stock, ours = MANAGERS
        self._side = Side(plan, stock if policy.mode == "off" else ours)
        assert self._side.scheduler._kvoxide_recorder is not None
        self._worker = Worker(plan)
        self._clients = Clients(plan, self._rng, self._worker)
        self._in_flight: deque[tuple[Any, dict[str, int]]] = deque()
        self.hits = 0
        self.queries = 0
        self.seen: Counter[str] = Counter()

    def run_step(self) -> None:
        """Let clients come and go, and make a step."""
        for happens in (self._submit, self._abort, self._reset):
            happens()
        self._step()

    def stop(self) -> None:
        """Serve the remaining requests for some steps, and shut down."""
        for _ in range(40):
            self._step()
        while self._in_flight:
            self._update()
        scheduler = self._side.scheduler
        scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
        self._count(scheduler.kv_cache_manager.make_prefix_cache_stats())
        scheduler.kv_event_publisher = mock.Mock()
        scheduler.shutdown()

    @property
    def _requests(self) -> dict[str, Any]:
        requests: dict[str, Any] = self._side.scheduler.requests
        return requests

    def _submit(self) -> None:
        for number, prompt in self._clients.arrivals(self._requests):
            request_id = name_of(number)
            skips = self._rng.random() < 0.1
            new = NewRequest(
                request_id=request_id,
                prompt=prompt,
                cache_salt="salt" if self._rng.random() < 0.05 else None,
                lora=None,
                session_id=None,
                skip_lookup=skips,
                full_report=False,
                max_tokens=self._rng.randint(1, self._plan.output_length),
            )
            self._side.add(new, 0, self._rng.randint(0, 2))
            self._requests[request_id].arrival_time = time.time()
            self.seen["request"] += 1
            self.seen["skips"] += skips

    def _abort(self) -> None:
        if self._requests and self._rng.random() < 0.05:
            request_id = self._rng.choice(sorted(self._requests))
            self._clients.remember(self._requests[request_id])
            self._side.abort([request_id])
            self.seen["abort"] += 1

    def _reset(self) -> None:
        if self._rng.random() < 0.02:
            running = self._rng.random() < 0.5
            done = self._side.reset(running=running)
            self.seen["reset"] += done
            self.seen["reset of running requests"] += done and running

    def _step(self) -> None:
        output = self._side.scheduler.schedule()
        self.seen["step"] += 1
        self.seen["preempted"] += len(output.preempted_req_ids or ())
        self._in_flight.append((output, num_drafts_of(self._side.scheduler, output)))
        is_idle = not self._in_flight[-1][1]
        if is_idle or len(self._in_flight) >= self._plan.num_steps_ahead:
            self._update()

    def _update(self) -> None:
        output, num_drafts = self._in_flight.popleft()
        sampled = self._worker.step(num_drafts, [], [])
        for request_id in sampled.tokens:
            if request_id in self._requests and self._rng.random() < 0.05:
                self._clients.remember(self._requests[request_id])
        made = self._side.scheduler.update_from_output(output, sampled.for_scheduler())
        if sampled.drafts:
            self._side.scheduler.update_draft_token_ids(sampled.drafts_for_scheduler())
        for each in made.values():
            if each.scheduler_stats is not None:
                self._count(each.scheduler_stats.prefix_cache_stats)

    def _count(self, stats: Any) -> None:
        self.hits += stats.hits
        self.queries += stats.queries
