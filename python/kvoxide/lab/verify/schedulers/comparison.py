"""Two schedulers of one plan. Each call goes to both, and their visible state is compared."""

import random
import traceback
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm.v1.request import RequestStatus

from kvoxide.lab.verify.managers.driver import NewRequest
from kvoxide.lab.verify.managers.printing import where_unequal
from kvoxide.lab.verify.managers.prompts import PromptFamily, Segment, Segments, tokens_of
from kvoxide.lab.verify.schedulers.observed import plain, plain_events
from kvoxide.lab.verify.schedulers.plan import Plan
from kvoxide.lab.verify.schedulers.side import MANAGERS, Side
from kvoxide.lab.verify.schedulers.worker import Sampled, Worker, num_drafts_of
from kvoxide.lab.verify.suite import require_fit


class Difference(Exception):
    def __init__(self, step: int, what: str, reference: Any, other: Any) -> None:
        super().__init__(f"step {step}: {what} differs\n  {reference}\n  {other}")
        self.step = step
        self.what = what
        self.reference = reference
        self.other = other


class Ended(Exception):
    """Both raised the same exception. The state of vLLM's scheduler is undefined from here on."""


class Comparison:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rng = random.Random(f"requests {plan.seed}")
        scenario = plan.scenario
        cuts = [scenario.scheduler_block_size, scenario.hash_block_size, scenario.max_model_len]
        self._family = PromptFamily(self._rng, cuts, scenario.max_model_len - 1)
        self._sides = tuple(Side(plan, manager) for manager in MANAGERS)
        self._worker = Worker(plan)
        self._in_flight: deque[tuple[list[Any], dict[str, int]]] = deque()
        self._known: dict[str, Segments] = {}
        self._loading: list[str] = []
        self.num_steps = 0
        self.num_calls = 0
        self.seen: Counter[str] = Counter()

    def run_step(self) -> None:
        self.num_steps += 1
        for happens in (self._submit, self._abort, self._reset):
            happens()
        self._schedule()
        is_idle = not self._in_flight[-1][1]
        if is_idle or len(self._in_flight) >= self._plan.num_steps_ahead:
            self._update()
        self._require_same("free blocks", _free_blocks)

    @property
    def _requests(self) -> dict[str, Any]:
        requests: dict[str, Any] = self._sides[0].scheduler.requests
        return requests

    def _submit(self) -> None:
        wanted = self._plan.num_requests
        while len(self._requests) < wanted:
            if self._requests and self._rng.random() >= self._plan.request_share:
                return
            request_id = f"r{len(self._known)}"
            prompt = self._family.draw()
            arrival, priority = len(self._known), self._rng.randint(0, 2)
            self._known[request_id] = prompt
            stream, start, length = prompt[-1]
            tokens = tokens_of(prompt)
            (first_output,) = tokens_of([Segment(stream, start + length, 1)])
            self._worker.expect(request_id, first_output)
            new = NewRequest(
                request_id=request_id,
                prompt=tokens,
                cache_salt="salt" if self._rng.random() < 0.05 else None,
                lora=None,
                session_id=None,
                skip_lookup=self._rng.random() < 0.05,
                full_report=False,
                max_tokens=self._rng.randint(1, self._plan.output_length),
            )
            self._add(new, arrival, priority)
            self.seen["request"] += 1

    def _add(self, new: NewRequest, arrival: int, priority: int) -> None:
        self._both("add_request", lambda side: side.add(new, arrival, priority))

    def _abort(self) -> None:
        if self._requests and self._rng.random() < 0.02:
            request_id = self._rng.choice(sorted(self._requests))
            self._remember(request_id)
            self._both("finish_requests", lambda s: s.abort([request_id]))
            self.seen["abort"] += 1

    def _remember(self, request_id: str) -> None:
        """Remember where the output ended, because later prompts may continue there."""
        request = self._requests[request_id]
        stream, start, length = self._known[request_id][-1]
        longest = self._plan.scenario.max_model_len - 1 - request.num_prompt_tokens
        length += min(request.num_output_tokens, max(longest, 0))
        prompt = (*self._known[request_id][:-1], Segment(stream, start, length))
        self._family.remember(prompt)

    def _reset(self) -> None:
        if self._rng.random() < 0.01:
            running = self._rng.random() < 0.5 and not self._loading
            done = self._both("reset_prefix_cache", lambda s: s.reset(running=running))
            self.seen[f"reset {'done' if done else 'refused'}"] += 1

    def _schedule(self) -> None:
        scheduled: list[Any] = []

        def schedule(side: Side) -> Any:
            output = side.scheduler.schedule()
            scheduled.append(output)
            return plain(output)

        shown = self._both("schedule", schedule)
        self._note_scheduled(shown)
        num_drafts = num_drafts_of(self._sides[0].scheduler, scheduled[0])
        self._in_flight.append((scheduled, num_drafts))
        waits = RequestStatus.WAITING_FOR_REMOTE_KVS
        known = {*self._loading, *self._sides[0].scheduler.finished_recving_kv_req_ids}
        loading = [r.request_id for r in self._requests.values() if r.status == waits]
        self._loading += [r for r in loading if r not in known]
        for side in self._sides:
            if side.connector is not None:
                side.connector.loading = list(self._loading)

    def _update(self) -> None:
        scheduled, num_drafts = self._in_flight.popleft()
        connector = self._sides[0].connector
        loaded_before = [r for r in self._loading if r in self._requests]
        sampled = self._worker.step(
            num_drafts, loaded_before, list(connector.sending) if connector else []
        )
        self._loading = [r for r in self._loading if r not in sampled.received]
        outputs = iter(scheduled)
        self._require_same_update(sampled, outputs)
        for side in self._sides:
            if side.connector is not None:
                sending = side.connector.sending
                side.connector.sending = [r for r in sending if r not in sampled.sent]
                side.connector.loading = list(self._loading)
        self._require_same("events", lambda side: plain_events(side.take_published()))

    def _require_same_update(self, sampled: Sampled, outputs: Any) -> None:
        def update(side: Side) -> Any:
            made = side.scheduler.update_from_output(next(outputs), sampled.for_scheduler())
            if sampled.drafts:
                side.scheduler.update_draft_token_ids(sampled.drafts_for_scheduler())
            return plain(made)

        for request_id in sampled.tokens:
            if request_id in self._requests and self._rng.random() < 0.05:
                self._remember(request_id)
        self._both("update_from_output", update)
        self.seen["received"] += len(sampled.received)
        self.seen["load failed"] += len(sampled.failed)
        self.seen["sent"] += len(sampled.sent)
        self.seen["tokens sampled"] += sum(map(len, sampled.tokens.values()))

    def _require_same(self, what: str, show: Callable[[Side], Any]) -> None:
        self._both(what, show)

    def _both(self, what: str, action: Callable[[Side], Any]) -> Any:
        self.num_calls += 1
        reference, other = (_outcome(action, side) for side in self._sides)
        if reference != other:
            raise Difference(self.num_steps, what, *where_unequal(reference, other))
        if isinstance(reference, Exception):
            self.seen[f"both raised {reference}"] += 1
            raise Ended(str(reference))
        return reference

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


class Raised(Exception):
    """An exception. Two of the same class are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raised) and self.args[:1] == other.args[:1]

    def __hash__(self) -> int:
        return hash(self.args[:1])


def _outcome(action: Callable[[Side], Any], side: Side) -> Any:
    try:
        return action(side)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        require_fit(error)
        (*_, frame) = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return Raised(type(error).__name__, f"{error} ({place})")


def _free_blocks(side: Side) -> int:
    return int(side.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
