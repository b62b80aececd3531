"""The life of a request: submitted, admitted, advanced, preempted, finished."""

from dataclasses import dataclass, replace

from kvoxide.lab.verify.managers.driver import Allocation, Hit, HitForm, NewRequest
from kvoxide.lab.verify.managers.operations.calls import (
    allocate,
    blocks_needed,
    cache,
    free,
    known_groups,
    look_up,
    record_for_zeroing,
    remove_skipped,
    resume_below_hit,
    schedule,
    show_table,
    truncate,
    truncate_to,
)
from kvoxide.lab.verify.managers.operations.chunks import aligned_chunk
from kvoxide.lab.verify.managers.operations.operation import OfRequest, Operation
from kvoxide.lab.verify.managers.operations.steps import finalize_tails
from kvoxide.lab.verify.managers.prompts import Segments, tokens_of
from kvoxide.lab.verify.managers.world import RequestModel, World


@dataclass(frozen=True)
class Submit(Operation):
    request: str
    prompt: Segments
    output_stream: int
    output_start: int = 0
    cache_salt: str | None = None
    lora: tuple[str, str] | None = None
    session_id: str | None = None
    skip_lookup: bool = False
    full_report: bool = False
    image_interval: int = 0
    num_encoder_tokens: int = 0

    def applies(self, world: World) -> bool:
        return self.request not in world.requests

    def run(self, world: World) -> None:
        model = RequestModel(
            request_id=self.request,
            prompt=self.prompt,
            output_stream=self.output_stream,
            output_start=self.output_start,
            skip_lookup=self.skip_lookup,
            num_encoder_tokens=self.num_encoder_tokens,
        )
        new_request = NewRequest(
            request_id=self.request,
            prompt=tokens_of(self.prompt),
            cache_salt=self.cache_salt,
            lora=self.lora,
            session_id=self.session_id,
            skip_lookup=self.skip_lookup,
            full_report=self.full_report,
            image_interval=self.image_interval,
        )
        world.submit(model, new_request)


@dataclass(frozen=True)
class LookUp(OfRequest):
    """Looks up without admission, and makes the calls that follow from the result."""

    max_hit: int | None = None
    for_connector: bool = False
    truncate_share: float | None = None

    def fits(self, world: World, model: RequestModel) -> bool:
        return not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        hit = look_up(world, model, self.max_hit, self.for_connector)
        if not model.holds_blocks:
            blocks_needed(world, model, hit, hit.num_tokens)
        if self.truncate_share is not None:
            truncate(world, model, hit, self.truncate_share)


@dataclass(frozen=True)
class Admit(OfRequest):
    """Looks up, takes the hit and the connector's tokens, and allocates the first chunk."""

    num_tokens: int = 1
    num_lookahead_tokens: int = 0
    max_hit: int | None = None
    for_connector: bool = False
    hit_form: HitForm = "hit"
    truncate_share: float | None = None
    num_external_tokens: int = 0
    load_async: bool = False
    delay_cache_blocks: bool = False
    full_sequence_must_fit: bool = False
    reserved_blocks: int = 0
    has_scheduled_reqs: bool = True
    skip_zeroing_group_ids: tuple[int, ...] = ()
    aligned: bool = True

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.status != "RUNNING" and not model.is_loading and not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        if model.num_computed_tokens > 0:
            self._admit_loaded(world, model)
        else:
            self._admit_fresh(world, model)

    def _admit_loaded(self, world: World, model: RequestModel) -> None:
        num_tokens = min(self.num_tokens, model.num_tokens - model.num_computed_tokens)
        num_tokens = self._aligned(world, model, model.num_computed_tokens, num_tokens)
        allocation = replace(
            self._allocation(world),
            num_new_tokens=num_tokens,
            hit_form="empty",
            num_encoder_tokens=model.num_encoder_tokens,
        )
        if allocate(world, model, allocation) is not None:
            schedule(model, num_tokens, 0)

    def _admit_fresh(self, world: World, model: RequestModel) -> None:
        hit_form, num_hit, external, load_async = self._computed(world, model)
        computed = num_hit + external
        num_tokens = 0 if load_async else self._first_chunk(world, model, computed)
        replay = 0 if load_async else min(world.scenario.replay_window, computed)
        allocation = replace(
            self._allocation(world),
            num_new_tokens=max(num_tokens - replay, 0),
            num_new_computed_tokens=num_hit,
            hit_form=hit_form,
            num_external_computed_tokens=external,
            delay_cache_blocks=load_async or self._delays_caching(world),
            num_encoder_tokens=0 if load_async else model.num_encoder_tokens,
        )
        if allocate(world, model, allocation) is None:
            return
        world.call_for(model, "record_stats", lambda d: d.record_stats(self.request, num_hit))
        model.num_hits = num_hit
        model.num_computed_tokens = computed - replay
        if load_async:
            model.is_loading = True
            model.status = "WAITING"
            world.coverage.seen["async load"] += 1
        else:
            schedule(model, num_tokens, 0)

    def _computed(self, world: World, model: RequestModel) -> tuple[HitForm, int, int, bool]:
        """Return the form in which the hit is passed, its tokens, the connector's tokens, and
        whether these load later."""
        hit = self._look_up(world, model, for_connector=self.for_connector)
        if self.hit_form not in ("hit", "padded", "rebuilt"):
            return self.hit_form, 0, *self._external_tokens(world, model, 0)
        num_hit = hit.num_tokens
        if world.scenario.aligns_states:
            num_hit, external, load_async = self._outbid(world, model, num_hit)
            if hit.diverged and external == 0:
                world.coverage.seen["diverged hit that nothing supports"] += 1
                num_hit = self._look_up(world, model, for_connector=False).num_tokens
        else:
            if self.truncate_share is not None:
                num_hit = truncate(world, model, hit, self.truncate_share)
            external, load_async = self._external_tokens(world, model, num_hit)
        if 0 < num_hit + external <= world.scenario.replay_window:
            return "empty", 0, 0, False
        return self.hit_form, num_hit, external, load_async

    def _look_up(self, world: World, model: RequestModel, *, for_connector: bool) -> Hit:
        max_hit = None if self.max_hit is None else min(self.max_hit, model.num_tokens - 1)
        hit = look_up(world, model, max_hit, for_connector)
        model.shared_prefix_boundary = hit.shared_prefix_boundary
        blocks_needed(world, model, hit, hit.num_tokens)
        return hit

    def _outbid(self, world: World, model: RequestModel, num_hit: int) -> tuple[int, int, bool]:
        """Return the hit, the connector's tokens and whether they load later. A hit that ends
        inside a block is shortened if a load reaches further."""
        tail = num_hit % world.scenario.scheduler_block_size
        external, load_async = self._external_tokens(world, model, num_hit - tail)
        if not tail:
            return num_hit, external, load_async
        if external <= tail:
            return num_hit, 0, False
        truncate_to(world, model, num_hit - tail)
        return num_hit - tail, external, load_async

    def _external_tokens(self, world: World, model: RequestModel, num_hit: int) -> tuple[int, bool]:
        if model.skip_lookup:
            return 0, False
        kept_for_compute = 0 if self.load_async else 1
        external = min(self.num_external_tokens, model.num_tokens - num_hit - kept_for_compute)
        if world.scenario.replay_window:
            external -= external % world.scenario.scheduler_block_size
        external = max(external, 0)
        return external, self.load_async and external > 0

    def _first_chunk(self, world: World, model: RequestModel, computed: int) -> int:
        resume_at = computed - min(world.scenario.replay_window, computed)
        num_tokens = min(self.num_tokens, model.num_tokens - resume_at)
        return self._aligned(world, model, resume_at, num_tokens)

    def _aligned(self, world: World, model: RequestModel, start: int, num_tokens: int) -> int:
        return (
            aligned_chunk(world.scenario, model, start, num_tokens) if self.aligned else num_tokens
        )

    def _delays_caching(self, world: World) -> bool:
        return self.delay_cache_blocks and not world.scenario.aligns_states

    def _allocation(self, world: World) -> Allocation:
        return Allocation(
            num_new_tokens=0,
            num_lookahead_tokens=0 if self.load_async else self.num_lookahead_tokens,
            full_sequence_must_fit=self.full_sequence_must_fit,
            reserved_blocks=self.reserved_blocks,
            has_scheduled_reqs=self.has_scheduled_reqs,
            skip_zeroing_group_ids=tuple(known_groups(world, self.skip_zeroing_group_ids)),
        )


@dataclass(frozen=True)
class FinishLoad(OfRequest):
    """Ends an async load, whole or with only ``valid_blocks`` scheduler blocks after the hit."""

    valid_blocks: int | None = None

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.is_loading

    def run_for(self, world: World, model: RequestModel) -> None:
        model.is_loading = False
        if self.valid_blocks is not None:
            world.coverage.seen["failed load"] += 1
            model.num_computed_tokens = self._num_valid_tokens(world, model)
        if model.num_computed_tokens == 0:
            free(world, model, deferred=False)
            return
        cache(world, model, model.num_computed_tokens)
        if self.valid_blocks is not None and world.scenario.needs_zeroing:
            record_for_zeroing(world, model, model.num_computed_tokens)
        resume_below_hit(world, model)

    def _num_valid_tokens(self, world: World, model: RequestModel) -> int:
        assert self.valid_blocks is not None
        if world.scenario.state_groups:
            return 0
        valid = model.num_hits + self.valid_blocks * world.scenario.scheduler_block_size
        if valid > model.num_computed_tokens:
            valid = model.num_hits
        return valid if valid > world.scenario.replay_window else 0


@dataclass(frozen=True)
class Advance(OfRequest):
    """Schedules a running request's next chunk, or its next token and ``num_draft_tokens``
    drafts."""

    num_tokens: int = 1
    num_draft_tokens: int = 0
    num_lookahead_tokens: int = 0
    aligned: bool = True

    def fits(self, world: World, model: RequestModel) -> bool:
        return (
            model.status == "RUNNING"
            and not model.is_stopped
            and model.num_computed_tokens < model.num_tokens_with_placeholders
            and model.num_computed_tokens < world.scenario.max_model_len
        )

    def run_for(self, world: World, model: RequestModel) -> None:
        missing = model.num_tokens_with_placeholders - model.num_computed_tokens
        num_tokens = min(self.num_tokens, missing)
        if num_tokens == missing and self._may_draft(world, model):
            num_tokens += self.num_draft_tokens
        num_tokens = min(num_tokens, world.scenario.max_model_len - model.num_computed_tokens)
        if self.aligned:
            start = model.num_computed_tokens
            num_tokens = aligned_chunk(world.scenario, model, start, num_tokens)
        allocation = Allocation(num_tokens, num_lookahead_tokens=self.num_lookahead_tokens)
        if allocate(world, model, allocation) is not None:
            schedule(model, num_tokens, max(0, num_tokens - missing))

    def _may_draft(self, world: World, model: RequestModel) -> bool:
        """Return whether drafts may follow. A chunk of a prefill has none, because a state would be
        kept beyond the hashes."""
        is_decoding = model.num_computed_tokens >= model.prefill_end
        return is_decoding or not world.scenario.aligns_states


@dataclass(frozen=True)
class Settle(OfRequest):
    """Processes the output of a request's oldest step."""

    num_accepted_tokens: int = 0
    cache: bool = True

    def fits(self, world: World, model: RequestModel) -> bool:
        return bool(model.steps)

    def run_for(self, world: World, model: RequestModel) -> None:
        step = model.steps.pop(0)
        model.num_in_flight_tokens -= step.num_tokens
        if not step.samples or step.is_dropped:
            return
        num_accepted = min(self.num_accepted_tokens, step.num_draft_tokens)
        world.coverage.seen["draft tokens rejected"] += step.num_draft_tokens - num_accepted
        world.coverage.seen["output of a preempted step"] += step.is_stale
        world.coverage.seen["output while later steps are in flight"] += bool(model.steps)
        if not step.is_stale:
            model.num_output_placeholders -= 1 + step.num_draft_tokens
            model.num_computed_tokens -= step.num_draft_tokens - num_accepted
        self._deliver(world, model, 1 + num_accepted)
        if self.cache and not step.is_stale and model.status == "RUNNING":
            cache(world, model, model.num_processed_tokens)

    def _deliver(self, world: World, model: RequestModel, num_tokens: int) -> None:
        room = world.scenario.max_model_len - model.num_tokens
        model.is_stopped = num_tokens >= room
        if min(num_tokens, room) > 0:
            world.append_output(model, min(num_tokens, room))


@dataclass(frozen=True)
class Preempt(OfRequest):
    deferred: bool = False
    drop_stale_output: bool = False

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.status == "RUNNING" and not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        free(world, model, self.deferred)
        model.preempt(drops_output=self.drop_stale_output)
        world.coverage.seen["preemption"] += 1


@dataclass(frozen=True)
class Finish(OfRequest):
    deferred: bool = False
    by_connector: bool = False

    def fits(self, world: World, model: RequestModel) -> bool:
        return True

    def run_for(self, world: World, model: RequestModel) -> None:
        if model.holds_blocks:
            if self.by_connector:
                finalize_tails(world, model)
                remove_skipped(world, model)
                show_table(world, model)
            free(world, model, self.deferred)
        world.forget(model)
