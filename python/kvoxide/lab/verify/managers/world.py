"""Two managers and one model of a scheduler. Each call goes to both managers and is compared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from kvoxide.lab.verify.managers.compare import Raised, outcome_of, outcomes_of, require_same
from kvoxide.lab.verify.managers.coverage import Coverage
from kvoxide.lab.verify.managers.driver import (
    BlockIds,
    Driver,
    Event,
    Events,
    Inside,
    InsideDriver,
    NewRequest,
    PoolState,
    Progress,
    Status,
)
from kvoxide.lab.verify.managers.prompts import Segment, Segments, length_of, tokens_of
from kvoxide.lab.verify.managers.scenarios import Scenario

T = TypeVar("T")

BLOCKS_COMPARED_PER_CALL = 48
VIEWS_COMPARED_PER_CALL = 32
NOT_IN_READY_MADE_HASHES = ("token_ids", "extra_keys", "lookahead_token_ids")
NOT_IN_STANDALONE_EVENTS = ("lora_id", "locality", "ownership")


class BothRaised(Exception):
    """Both sides raised; vLLM's state is undefined from here on."""


@dataclass
class Step:
    """Tokens of a request that run on the device. ``samples`` is whether the step yields tokens."""

    num_tokens: int
    num_draft_tokens: int
    samples: bool
    is_stale: bool = False
    is_dropped: bool = False


@dataclass
class RequestModel:
    """The scheduler's knowledge of a request."""

    request_id: str
    prompt: Segments
    output_stream: int
    output_start: int
    skip_lookup: bool
    num_encoder_tokens: int = 0
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    num_in_flight_tokens: int = 0
    num_output_placeholders: int = 0
    shared_prefix_boundary: int = 0
    num_preemptions: int = 0
    status: Status = "WAITING"
    holds_blocks: bool = False
    is_loading: bool = False
    is_stopped: bool = False
    num_hits: int = 0
    block_hashes: list[bytes] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def num_prompt_tokens(self) -> int:
        return length_of(self.prompt)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def prefill_end(self) -> int:
        """The end of the prefill, including outputs of a preempted request."""
        return max(self.num_prompt_tokens, self.num_tokens - 1)

    @property
    def num_tokens_with_placeholders(self) -> int:
        return self.num_tokens + self.num_output_placeholders

    @property
    def num_processed_tokens(self) -> int:
        return max(0, self.num_computed_tokens - self.num_in_flight_tokens)

    @property
    def segments(self) -> Segments:
        output = Segment(self.output_stream, self.output_start, self.num_output_tokens)
        return (*self.prompt, output)

    def preempt(self, drops_output: bool) -> None:
        """Set the request back to its start. The steps in flight are stale; with ``drops_output``,
        their tokens are dropped too."""
        self.status = "PREEMPTED"
        self.num_computed_tokens = 0
        self.num_output_placeholders = 0
        self.num_preemptions += 1
        for step in self.steps:
            step.is_stale = True
            step.is_dropped |= drops_output

    def next_output(self, num_tokens: int) -> list[int]:
        start = self.output_start + self.num_output_tokens
        return tokens_of([Segment(self.output_stream, start, num_tokens)])

    @property
    def progress(self) -> Progress:
        return Progress(
            num_computed_tokens=self.num_computed_tokens,
            num_in_flight_tokens=self.num_in_flight_tokens,
            shared_prefix_boundary=self.shared_prefix_boundary,
            num_preemptions=self.num_preemptions,
            status=self.status,
        )


class World:
    def __init__(
        self,
        scenario: Scenario,
        reference: Driver,
        other: Driver,
        *,
        calls_per_check: int | None,
    ) -> None:
        self.scenario = scenario
        self.coverage = Coverage()
        self.requests: dict[str, RequestModel] = {}
        self.num_popped = 0
        self.num_held = 0
        self.num_copied = 0
        self.scheduled: set[str] = set()
        self.last_refused: str | None = None
        self.has_vllm_interface = reference.has_vllm_interface and other.has_vllm_interface
        self._sides = (reference, other)
        self._calls_per_check = calls_per_check or self._affordable_calls_per_check()
        self._last_state: PoolState | None = None
        self.check_state("construction")

    def _affordable_calls_per_check(self) -> int:
        compared = VIEWS_COMPARED_PER_CALL if self.has_vllm_interface else BLOCKS_COMPARED_PER_CALL
        return max(1, self.scenario.num_blocks // compared)

    @property
    def num_calls(self) -> int:
        return self.coverage.num_calls

    @property
    def holders(self) -> list[RequestModel]:
        return [r for r in self.requests.values() if r.holds_blocks]

    @property
    def some_cached_block(self) -> int | None:
        """A block that was cached when the state was last compared."""
        hashes = self._last_state.block_hashes if self._last_state else []
        return next((i for i, block_hash in enumerate(hashes) if block_hash is not None), None)

    @property
    def watermark_blocks(self) -> int:
        return int(self.scenario.watermark * self.scenario.num_blocks)

    @property
    def are_both_vllms_own(self) -> bool:
        """Whether both sides have vLLM's own manager by now."""
        return all(side.is_vllms_own() for side in self._sides)  # type: ignore[attr-defined]

    def num_free_blocks(self) -> int:
        return self._sides[0].num_free_blocks()

    def call(self, name: str, action: Callable[[Driver], T]) -> T:
        """Make one call on both sides, and return its result. Raises Difference, or BothRaised."""
        result = self._call(name, action)
        if isinstance(result, Raised):
            self.coverage.seen[f"both raised {result.classes[0]}"] += 1
            raise BothRaised(f"{name}: {result.message}")
        return result

    def call_for(self, request: RequestModel, name: str, action: Callable[[Driver], T]) -> T:
        """Make a call that reads ``request``, after writing its attributes."""
        progress = request.progress
        for side in self._sides:
            side.set_progress(request.request_id, progress)
        return self.call(name, action)

    def call_inside(self, name: str, action: Callable[[InsideDriver], T]) -> T:
        """Make a call that only managers with vLLM's interface have."""
        return self.call(name, action)  # type: ignore[arg-type]

    def call_refused(self, name: str, action: Callable[[Driver], object]) -> None:
        """Make a call that is a misuse. If both sides raise, kvoxide's must stay unchanged. Raises
        BothRaised if the call changed vLLM's own side."""
        reference, other = self._sides
        self.check_state(f"before {name}")
        before, other_before = self._everything(reference), self._everything(other)
        result = self._call(name, action)
        if not isinstance(result, Raised):
            return
        self.coverage.seen[f"misuse answered by {result.own_class}"] += 1
        unchanged = f"{name}, which is to change nothing,"
        if other.errors_change_nothing:
            require_same(unchanged, other_before, self._everything(other))
        if self._everything(reference) != before:
            self.coverage.seen["misuse that changed vLLM"] += 1
            raise BothRaised(f"{name}: {result.message}")

    def call_refused_inside(self, name: str, action: Callable[[InsideDriver], object]) -> None:
        self.call_refused(name, action)  # type: ignore[arg-type]

    def _call(self, name: str, action: Callable[[Driver], T]) -> T | Raised:
        self.coverage.calls[name] += 1
        results = outcomes_of(action, self._sides)
        reference, other = (self._comparable(result) for result in results)
        require_same(name, reference, other, own_classes=self.has_vllm_interface)
        if self.num_calls % self._calls_per_check == 0 and not isinstance(reference, Raised):
            self.check_state(name)
        return reference

    def _comparable(self, result: T | Raised) -> T | Raised:
        if self.has_vllm_interface or not isinstance(result, Events):
            return result
        unknown: tuple[str, ...] = NOT_IN_STANDALONE_EVENTS
        if self.scenario.ready_made_hashes:
            unknown += NOT_IN_READY_MADE_HASHES
        known = [_without(event, unknown) for event in result.events]
        return Events(known, result.unordered)  # type: ignore[return-value]

    def check_state(self, after: str) -> None:
        state = self._state(after)
        self._note_evictions(state)
        self._last_state = state
        if self.has_vllm_interface:
            self._require_same_inside(after)
        for request in self.holders:
            self._require_same_table(request.request_id, after)

    def _state(self, after: str) -> PoolState:
        reference, other = outcomes_of(_state_of, self._sides)
        require_same(f"state after {after}", reference, other)
        assert not isinstance(reference, Raised), reference.message
        return reference

    def _everything(self, side: Driver) -> tuple[PoolState, bytes, Inside | None]:
        inside = _inside_of(side) if self.has_vllm_interface else None
        return side.state(), side.state_digest(), inside

    def _require_same_inside(self, after: str) -> None:
        reference, other = outcomes_of(_inside_of, self._sides)
        require_same(f"inside after {after}", reference, other)
        assert isinstance(reference, Inside), reference
        for callback, _ in reference.callbacks:
            self.coverage.seen[f"block {callback}"] += 1

    def _require_same_table(self, request_id: str, after: str) -> None:
        def table_of(side: Driver) -> BlockIds:
            return side.block_ids(request_id)

        reference, other = outcomes_of(table_of, self._sides)
        require_same(f"block table of {request_id} after {after}", reference, other)

    def _note_evictions(self, state: PoolState) -> None:
        if self._last_state is not None:
            before = self._last_state.block_hashes
            lost = sum(
                old is not None and old != new
                for old, new in zip(before, state.block_hashes, strict=True)
            )
            self.coverage.seen["blocks that lost their hash"] += lost

    def submit(self, request: RequestModel, new_request: NewRequest) -> None:
        """Submit a request. A request with ready-made hashes takes them from vLLM's side."""
        reference, other = self._sides
        hashes = reference.new_request(new_request)
        if self.scenario.ready_made_hashes:
            new_request = _with_hashes(new_request, hashes)
        other_hashes = outcome_of(lambda d: d.new_request(new_request), other)
        require_same("new_request", hashes, other_hashes)
        request.block_hashes = hashes
        self.requests[request.request_id] = request

    def append_output(self, request: RequestModel, num_tokens: int) -> None:
        request_id = request.request_id
        tokens = request.next_output(num_tokens)
        reference, other = self._sides
        hashes = reference.append_tokens(request_id, tokens, None)
        new_hashes = hashes[len(request.block_hashes) :]
        other_hashes = outcome_of(lambda d: d.append_tokens(request_id, tokens, new_hashes), other)
        require_same("append_output_token_ids", hashes, other_hashes)
        request.block_hashes = hashes
        request.num_output_tokens += num_tokens

    def forget(self, request: RequestModel) -> None:
        for side in self._sides:
            side.forget(request.request_id)
        del self.requests[request.request_id]


def _state_of(side: Driver) -> PoolState:
    return side.state()


def _inside_of(side: Driver) -> Inside:
    return side.inside()  # type: ignore[attr-defined, no-any-return]


def _with_hashes(request: NewRequest, hashes: list[bytes]) -> NewRequest:
    fields = {**vars(request), "block_hashes": hashes}
    return NewRequest(**fields)


def _without(event: Event, names: Iterable[str]) -> Event:
    return {name: value for name, value in event.items() if name not in names}
