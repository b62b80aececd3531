"""Two schedulers of one plan. Each call goes to both, and their visible state is compared."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from vllm.v1.request import RequestStatus

from kvoxide.lab.verify.managers.driver import NewRequest
from kvoxide.lab.verify.schedulers.clients import Clients, name_of
from kvoxide.lab.verify.schedulers.observed import plain, plain_events
from kvoxide.lab.verify.schedulers.plan import Plan
from kvoxide.lab.verify.schedulers.side import MANAGERS, Side
from kvoxide.lab.verify.schedulers.twins import Raised, Twins
from kvoxide.lab.verify.schedulers.worker import Sampled, Worker, num_drafts_of


class Ended(Exception):
    """Both raised the same exception. The state of vLLM's scheduler is undefined from here on."""


class Comparison(Twins[Side]):
    def __init__(self, plan: Plan) -> None:
        super().__init__(*(Side(plan, manager) for manager in MANAGERS))
        self._plan = plan
        self._rng = random.Random(f"requests {plan.seed}")
        self._worker = Worker(plan)
        self._clients = Clients(plan, self._rng, self._worker)
        self._in_flight: deque[tuple[list[Any], dict[str, int]]] = deque()
        self._loading: list[str] = []

    def run_step(self) -> None:
        self.num_steps += 1
        for happens in (self._submit, self._abort, self._reset):
            happens()
        self._schedule()
        is_idle = not self._in_flight[-1][1]
        if is_idle or len(self._in_flight) >= self._plan.num_steps_ahead:
            self._update()
        self._call_both("free blocks", _free_blocks)

    @property
    def _requests(self) -> dict[str, Any]:
        requests: dict[str, Any] = self.sides[0].scheduler.requests
        return requests

    def _submit(self) -> None:
        for number, prompt in self._clients.arrivals(self._requests):
            priority = self._rng.randint(0, 2)
            new = NewRequest(
                request_id=name_of(number),
                prompt=prompt,
                cache_salt="salt" if self._rng.random() < 0.05 else None,
                lora=None,
                session_id=None,
                skip_lookup=self._rng.random() < 0.05,
                full_report=False,
                max_tokens=self._rng.randint(1, self._plan.output_length),
            )
            self._add(new, number, priority)
            self.seen["request"] += 1

    def _add(self, new: NewRequest, arrival: int, priority: int) -> None:
        self._call_both("add_request", lambda side: side.add(new, arrival, priority))

    def _abort(self) -> None:
        if self._requests and self._rng.random() < 0.02:
            request_id = self._rng.choice(sorted(self._requests))
            self._clients.remember(self._requests[request_id])
            self._call_both("finish_requests", lambda s: s.abort([request_id]))
            self.seen["abort"] += 1

    def _reset(self) -> None:
        if self._rng.random() < 0.01:
            running = self._rng.random() < 0.5 and not self._loading
            done = self._call_both("reset_prefix_cache", lambda s: s.reset(running=running))
            self.seen[f"reset {'done' if done else 'refused'}"] += 1

    def _schedule(self) -> None:
        scheduled: list[Any] = []

        def schedule(side: Side) -> Any:
            output = side.scheduler.schedule()
            scheduled.append(output)
            return plain(output)

        shown = self._call_both("schedule", schedule)
        self._note_scheduled(shown)
        num_drafts = num_drafts_of(self.sides[0].scheduler, scheduled[0])
        self._in_flight.append((scheduled, num_drafts))
        waits = RequestStatus.WAITING_FOR_REMOTE_KVS
        known = {*self._loading, *self.sides[0].scheduler.finished_recving_kv_req_ids}
        loading = [r.request_id for r in self._requests.values() if r.status == waits]
        self._loading += [r for r in loading if r not in known]
        for side in self.sides:
            if side.connector is not None:
                side.connector.loading = list(self._loading)

    def _update(self) -> None:
        scheduled, num_drafts = self._in_flight.popleft()
        connector = self.sides[0].connector
        loaded_before = [r for r in self._loading if r in self._requests]
        sampled = self._worker.step(
            num_drafts, loaded_before, list(connector.sending) if connector else []
        )
        self._loading = [r for r in self._loading if r not in sampled.received]
        outputs = iter(scheduled)
        self._require_same_update(sampled, outputs)
        for side in self.sides:
            if side.connector is not None:
                sending = side.connector.sending
                side.connector.sending = [r for r in sending if r not in sampled.sent]
                side.connector.loading = list(self._loading)
        self._call_both("events", lambda side: plain_events(side.take_published()))

    def _require_same_update(self, sampled: Sampled, outputs: Any) -> None:
        def update(side: Side) -> Any:
            made = side.scheduler.update_from_output(next(outputs), sampled.for_scheduler())
            if sampled.drafts:
                side.scheduler.update_draft_token_ids(sampled.drafts_for_scheduler())
            return plain(made)

        for request_id in sampled.tokens:
            if request_id in self._requests and self._rng.random() < 0.05:
                self._clients.remember(self._requests[request_id])
        self._call_both("update_from_output", update)
        self.seen["received"] += len(sampled.received)
        self.seen["load failed"] += len(sampled.failed)
        self.seen["sent"] += len(sampled.sent)
        self.seen["tokens sampled"] += sum(map(len, sampled.tokens.values()))

    def _call_both(self, what: str, action: Callable[[Side], Any]) -> Any:
        result = self.both(what, action)
        if isinstance(result, Raised):
            self.seen[f"both raised {result}"] += 1
            raise Ended(str(result))
        return result

    def _note_scheduled(self, shown: dict[str, Any]) -> None:
        self.seen["step"] += 1
        self.seen["step without tokens"] += not shown["total_num_scheduled_tokens"]
        self.seen["drafts scheduled"] += sum(
            map(len, shown["scheduled_spec_decode_tokens"].values())
        )
        self.seen["preempted"] += len(shown["preempted_req_ids"] or ())
        self.seen["new request"] += len(shown["scheduled_new_reqs"])
        new = shown["scheduled_new_reqs"]
        self.seen["new request with a hit"] += sum(r["num_computed_tokens"] > 0 for r in new)
        self.seen["blocks to zero"] += len(shown["new_block_ids_to_zero"] or ())
        self.seen["blocks copied"] += len(shown.get("kv_cache_block_copies") or ())
        self.seen["async load"] += len(self._loading)


def _free_blocks(side: Side) -> int:
    return int(side.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
