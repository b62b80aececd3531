"""The model and the workers. The results of a step are drawn from a seed."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from kvoxide.lab.verify.schedulers.plan import Plan


@dataclass(frozen=True)
class Sampled:
    """The results of one step: tokens of each request, drafts for the next step, and finished
    transfers."""

    tokens: dict[str, list[int]]
    drafts: dict[str, list[int]] = field(default_factory=dict)
    received: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()

    def for_scheduler(self) -> ModelRunnerOutput:
        """Create the output anew for each side, because a scheduler changes the lists that it
        gets."""
        request_ids = list(self.tokens)
        return ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(request_ids)},
            sampled_token_ids=[list(tokens) for tokens in self.tokens.values()],
            kv_connector_output=self._transfers(),
        )

    def _transfers(self) -> KVConnectorOutput | None:
        if not (self.received or self.sent):
            return None
        failed = {"failed_recving": set(self.failed)} if self.failed else {}
        return KVConnectorOutput(
            finished_sending=set(self.sent), finished_recving=set(self.received), **failed
        )

    def drafts_for_scheduler(self) -> DraftTokenIds:
        return DraftTokenIds(list(self.drafts), [list(drafts) for drafts in self.drafts.values()])


class Worker:
    def __init__(self, plan: Plan) -> None:
        self._rng = random.Random(f"worker {plan.seed}")
        self._plan = plan
        self._acceptance = self._rng.choice((0.0, 0.3, 0.8, 1.0))
        self._next_token: dict[str, int] = {}

    def expect(self, request_id: str, first_output: int) -> None:
        self._next_token[request_id] = first_output

    def step(
        self, num_drafts: dict[str, int], loading: Iterable[str], sending: Iterable[str]
    ) -> Sampled:
        """Draw the results of a step. ``num_drafts`` has the drafts of each request that ran, or -1
        if its prefill continues."""
        received = frozenset(r for r in loading if self._rng.random() < 0.4)
        return Sampled(
            tokens={r: self._sample(r, drafts) for r, drafts in num_drafts.items()},
            drafts={r: self._draft() for r in num_drafts} if self._proposes_drafts() else {},
            received=received,
            failed=frozenset(r for r in sorted(received) if self._rng.random() < 0.1),
            sent=frozenset(r for r in sending if self._rng.random() < 0.4),
        )

    def _proposes_drafts(self) -> bool:
        return self._plan.num_spec_tokens > 0 and not self._plan.is_async

    def _sample(self, request_id: str, num_drafts: int) -> list[int]:
        if num_drafts < 0:
            return []
        num_accepted = 0
        while num_accepted < num_drafts and self._rng.random() < self._acceptance:
            num_accepted += 1
        first = self._next_token[request_id]
        self._next_token[request_id] += 1 + num_accepted
        return list(range(first, first + 1 + num_accepted))

    def _draft(self) -> list[int]:
        most = self._plan.num_spec_tokens
        return [7] * self._rng.choice((most, most, most, self._rng.randint(0, most)))


def num_drafts_of(scheduler: Any, scheduled: Any) -> dict[str, int]:
    drafts = scheduled.scheduled_spec_decode_tokens
    return {
        request_id: -1
        if scheduler.requests[request_id].is_prefill_chunk
        else len(drafts.get(request_id, ()))
        for request_id in scheduled.num_scheduled_tokens
    }
