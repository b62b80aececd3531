"""Draws the next operation from a seed and from the state of the scheduler's model."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from kvoxide.lab.verify.managers.driver import HitForm
from kvoxide.lab.verify.managers.inside_traffic import InsideTraffic
from kvoxide.lab.verify.managers.operations import Operation
from kvoxide.lab.verify.managers.operations.inside import UnpinHeld
from kvoxide.lab.verify.managers.operations.pool import (
    CacheBlocks,
    CachedBlock,
    Evict,
    Inspect,
    RecordForZeroing,
    ReleaseHeld,
    RemoveSkipped,
    ResetPrefixCache,
    ReturnDeferred,
    TakeBlocks,
    TakeEvents,
    TakeNewBlockIds,
    TakeStats,
)
from kvoxide.lab.verify.managers.operations.requests import (
    Admit,
    Advance,
    Finish,
    FinishLoad,
    LookUp,
    Preempt,
    Settle,
    Submit,
)
from kvoxide.lab.verify.managers.operations.steps import FinalizeTails, NextStep, ReleaseCopied
from kvoxide.lab.verify.managers.prompts import PromptFamily, Segments
from kvoxide.lab.verify.managers.scenarios import Scenario, draw_style
from kvoxide.lab.verify.managers.world import RequestModel, World
from kvoxide.lab.verify.managers.wrapping_traffic import WrappingTraffic
from kvoxide.lab.verify.managers.writing_traffic import WritingTraffic

Draw: TypeAlias = Callable[[World], Operation | None]


class Traffic:
    """Draws the operations of one scenario. ``beginning`` distinguishes several runs of it.
    ``with_inside`` also draws calls that only managers with vLLM's interface have."""

    def __init__(
        self, scenario: Scenario, beginning: int = 0, *, with_inside: bool = False
    ) -> None:
        self._rng = random.Random(f"traffic {scenario.seed} {beginning}")
        self._scenario = scenario
        self._style = draw_style(self._rng, scenario)
        if with_inside:
            image_share = self._rng.choice((0.0, 0.0, 0.5, 1.0))
            self._style = replace(self._style, image_share=image_share)
        self._family = PromptFamily(self._rng, _cuts(scenario), scenario.max_model_len - 1)
        self._num_submitted = 0
        self._planned: deque[Operation] = deque()
        self._draws, self._weights = self._weighted_draws(with_inside)

    def _weighted_draws(self, with_inside: bool) -> tuple[list[Draw], list[float]]:
        """Return the draws and their weights. Weights vary between scenarios: each kind is
        sometimes rare, sometimes frequent."""
        inside = InsideTraffic(self._rng, self._scenario)
        weighted: list[tuple[Draw, float]] = [
            (self._submit, 8),
            (self._admit, 14),
            (self._advance, 45),
            (self._settle, 25),
            (self._preempt, 1.5),
            (self._finish, 2),
            (self._finish_load, 6),
            (self._return_deferred, 3),
            (self._look_up, 3),
            (self._cached_block, 2),
            (self._cache_blocks, 1),
            (self._remove_skipped, 1),
            (self._inspect, 2),
            (self._take_events, 3),
            (self._take_new_block_ids, 3),
            (self._record_for_zeroing, 0.5),
            (self._take_stats, 0.5),
            (self._evict, 0.4),
            (self._take_blocks, 0.5),
            (self._release_held, 1.5),
            (self._reset, 0.08),
            (self._drain_and_reset, 0.04),
            (inside.misuse, 0.3),
            (self._next_step, 6),
            (self._release_copied, 3),
            (self._finalize_tails, 0.3),
        ]
        if with_inside:
            weighted += [
                (inside.look_inside, 2),
                (self._unpin, 0.5),
                (inside.misuse_inside, 0.3),
                (inside.misuse_for_good, 0.03),
            ]
        if with_inside and self._scenario.pokes_at_pool:
            weighted += [(inside.poke, 3)]
        if with_inside and self._scenario.writes_by_hand:
            weighted += [(WritingTraffic(self._rng, self._scenario).write, 8)]
        if with_inside and self._scenario.wraps_methods:
            weighted += [(WrappingTraffic(self._rng, self._scenario).wrap, 0.2)]
        emphasis = (0.3, 1, 1, 1, 3)
        return (
            [draw for draw, _ in weighted],
            [weight * self._rng.choice(emphasis) for _, weight in weighted],
        )

    def next(self, world: World) -> Operation:
        while True:
            operation = self._candidate(world)
            if operation is not None and operation.applies(world):
                return operation

    def _candidate(self, world: World) -> Operation | None:
        if self._planned:
            return self._planned.popleft()
        if self._chance(self._style.step_share * len(world.scheduled) / 4):
            return self._next_step(world)
        if world.last_refused is not None:
            self._planned.extend(self._make_room(world))
        return self._rng.choices(self._draws, self._weights)[0](world)

    def _make_room(self, world: World) -> Iterator[Operation]:
        """Yield operations that free blocks. vLLM preempts the newest running request when a
        running one gets no slots."""
        refused = world.requests.get(world.last_refused or "")
        world.last_refused = None
        running = [r for r in world.holders if r.status == "RUNNING"]
        if refused is None or not running:
            return
        if self._scenario.aligns_states and refused.status == "RUNNING":
            yield from self._until_it_fits(refused, running[-1])
            return
        if self._chance(0.2):
            return
        if refused.status == "RUNNING" or self._chance(0.2):
            yield Preempt(running[-1].request_id, self._deferred(), self._chance(0.3))
        elif self._chance(0.3):
            yield Finish(running[0].request_id, self._deferred())

    def _until_it_fits(self, refused: RequestModel, newest: RequestModel) -> Iterator[Operation]:
        """Yield operations until the refused request fits or is preempted. Otherwise a request
        could continue with a state that a failed call reserved."""
        yield Preempt(newest.request_id, self._deferred(), self._chance(0.3))
        if newest is not refused:
            yield Advance(refused.request_id, self._chunk())

    def _submit(self, world: World) -> Operation | None:
        if len(world.requests) >= self._style.num_requests:
            return None
        self._num_submitted += 1
        prompt = self._family.draw_echo() if self._style.echoes else self._family.draw()
        output_stream, output_start = self._output_after(prompt)
        return Submit(
            request=self._request_id(world),
            prompt=prompt,
            output_stream=output_stream,
            output_start=output_start,
            cache_salt="salt" if self._chance(self._style.salt_share) else None,
            lora=("adapter", "/adapter") if self._chance(self._style.lora_share) else None,
            session_id=f"session {self._num_submitted % 3}" if self._chance(0.3) else None,
            skip_lookup=self._chance(0.04),
            full_report=self._chance(self._style.full_report_share),
            image_interval=self._image_interval(),
            num_encoder_tokens=self._num_encoder_tokens(),
        )

    def _num_encoder_tokens(self) -> int:
        if not self._scenario.has_cross_attention:
            return 0
        longest = 6 * self._scenario.scheduler_block_size
        return self._rng.choice((0, longest, self._rng.randint(1, longest)))

    def _image_interval(self) -> int:
        """Return an interval. All prompts of a scenario have the same one; otherwise the same
        tokens would be other images."""
        if not self._style.image_share or not self._chance(self._style.image_share):
            return 0
        return 2 * self._scenario.hash_block_size + 3

    def _request_id(self, world: World) -> str:
        """Return a new id, or sometimes the id of a request that has ended."""
        earlier = f"r{self._rng.randint(1, self._num_submitted)}"
        if self._chance(0.2) and earlier not in world.requests:
            return earlier
        return f"r{self._num_submitted}"

    def _output_after(self, prompt: Segments) -> tuple[int, int]:
        """Return where an output begins. Outputs that continue the prompt make requests meet in the
        same blocks."""
        if self._style.echoes or self._chance(0.5):
            stream, start, length = prompt[-1]
            return stream, start + length
        return self._family.new_stream(), 0

    def _admit(self, world: World) -> Operation | None:
        model = self._pick(
            r
            for r in world.requests.values()
            if r.status != "RUNNING" and self._is_free_this_step(world, r)
        )
        if model is None:
            return None
        style = self._style
        external = self._chance(style.external_share)
        return Admit(
            request=model.request_id,
            num_tokens=self._chunk(),
            num_lookahead_tokens=style.num_lookahead_tokens,
            max_hit=self._rng.randint(0, model.num_tokens) if self._chance(0.08) else None,
            for_connector=style.connector and self._chance(0.5),
            hit_form=self._hit_form(),
            truncate_share=self._rng.random() if self._chance(0.06) else None,
            num_external_tokens=self._external_length(model) if external else 0,
            load_async=self._chance(style.async_share),
            delay_cache_blocks=self._chance(0.05),
            full_sequence_must_fit=style.must_fit,
            reserved_blocks=self._rng.randint(0, 12) if self._chance(0.15) else 0,
            has_scheduled_reqs=self._chance(0.7),
            skip_zeroing_group_ids=self._some_groups() if external else (),
            aligned=not self._chance(style.misaligned_share),
        )

    def _is_free_this_step(self, world: World, model: RequestModel) -> bool:
        """Return whether this step may still have a chunk of the request. With states, a step has
        only one, because states are copied between chunks."""
        return not self._scenario.aligns_states or model.request_id not in world.scheduled

    def _hit_form(self) -> HitForm:
        forms: tuple[HitForm, ...] = ("hit", "padded", "rebuilt", "none", "empty", "new_empty")
        return self._rng.choices(forms, weights=(86, 4, 4, 2, 2, 2))[0]

    def _external_length(self, model: RequestModel) -> int:
        block_size = self._scenario.scheduler_block_size
        if self._chance(0.5):
            return self._rng.randint(1, model.num_tokens)
        return self._rng.randint(1, model.num_tokens // block_size + 1) * block_size

    def _some_groups(self) -> tuple[int, ...]:
        groups = range(len(self._scenario.groups))
        return tuple(i for i in groups if self._chance(0.5))

    def _advance(self, world: World) -> Operation | None:
        model = self._pick(
            r
            for r in world.requests.values()
            if r.status == "RUNNING"
            and len(r.steps) < self._style.num_steps_ahead
            and self._is_free_this_step(world, r)
        )
        if model is None:
            return None
        if self._is_done(model):
            return Finish(model.request_id, self._deferred(), self._style.connector)
        if self._style.num_steps_ahead == 1:
            self._planned.append(self._settle_of(model))
        return Advance(
            request=model.request_id,
            num_tokens=self._chunk(),
            num_draft_tokens=self._rng.randint(0, self._style.num_draft_tokens),
            num_lookahead_tokens=self._style.num_lookahead_tokens,
            aligned=not self._chance(self._style.misaligned_share),
        )

    def _is_done(self, model: RequestModel) -> bool:
        return model.is_stopped or model.num_output_tokens >= self._style.output_length

    def _settle(self, world: World) -> Operation | None:
        model = self._pick(r for r in world.requests.values() if r.steps)
        return None if model is None else self._settle_of(model)

    def _settle_of(self, model: RequestModel) -> Operation:
        num_accepted = self._rng.randint(0, self._style.num_draft_tokens)
        return Settle(model.request_id, num_accepted, cache=self._chance(0.6))

    def _preempt(self, world: World) -> Operation | None:
        model = self._pick(r for r in world.holders if r.status == "RUNNING")
        if model is None:
            return None
        return Preempt(model.request_id, self._deferred(), self._chance(0.3))

    def _finish(self, world: World) -> Operation | None:
        model = self._pick(world.requests.values())
        if model is None:
            return None
        if self._chance(0.5) and model.num_tokens < self._scenario.max_model_len:
            self._family.remember(model.segments)
        return Finish(model.request_id, self._deferred(), self._style.connector)

    def _finish_load(self, world: World) -> Operation | None:
        model = self._pick(r for r in world.requests.values() if r.is_loading)
        if model is None:
            return None
        return FinishLoad(model.request_id, self._rng.randint(0, 4) if self._chance(0.3) else None)

    def _look_up(self, world: World) -> Operation | None:
        model = self._pick(world.requests.values())
        if model is None:
            return None
        return LookUp(
            model.request_id,
            max_hit=self._rng.randint(0, model.num_tokens) if self._chance(0.4) else None,
            for_connector=self._chance(0.3),
            truncate_share=self._rng.random() if self._chance(0.4) else None,
        )

    def _cached_block(self, world: World) -> Operation | None:
        model = self._pick(world.requests.values())
        if model is None:
            return None
        return CachedBlock(
            model.request_id,
            hash_index=self._rng.randrange(64),
            group_ids=self._some_groups() or (0,),
            hold=self._chance(0.4) and world.num_held < 3,
        )

    def _cache_blocks(self, world: World) -> Operation | None:
        return self._of_holder(world, CacheBlocks)

    def _remove_skipped(self, world: World) -> Operation | None:
        return self._of_holder(world, RemoveSkipped)

    def _inspect(self, world: World) -> Operation | None:
        return self._of_holder(world, Inspect)

    def _of_holder(self, world: World, operation: Callable[[str], Operation]) -> Operation | None:
        model = self._pick(world.holders)
        return None if model is None else operation(model.request_id)

    def _record_for_zeroing(self, world: World) -> Operation | None:
        model = self._pick(world.holders)
        if model is None:
            return None
        return RecordForZeroing(model.request_id, self._rng.randint(0, 3))

    def _return_deferred(self, world: World) -> Operation:
        return ReturnDeferred()

    def _next_step(self, world: World) -> Operation:
        return NextStep(self._chance(0.5), without_taking=self._chance(0.05))

    def _release_copied(self, world: World) -> Operation:
        return ReleaseCopied()

    def _finalize_tails(self, world: World) -> Operation | None:
        return self._of_holder(world, FinalizeTails)

    def _take_events(self, world: World) -> Operation:
        return TakeEvents()

    def _take_new_block_ids(self, world: World) -> Operation:
        return TakeNewBlockIds()

    def _take_stats(self, world: World) -> Operation:
        return TakeStats()

    def _evict(self, world: World) -> Operation:
        count = self._rng.choice((1, 1, 2, 5))
        num_blocks = self._scenario.num_blocks
        return Evict(tuple(self._rng.randrange(num_blocks) for _ in range(count)))

    def _take_blocks(self, world: World) -> Operation | None:
        return TakeBlocks(self._rng.randint(0, 4)) if world.num_held < 3 else None

    def _release_held(self, world: World) -> Operation:
        return ReleaseHeld()

    def _reset(self, world: World) -> Operation:
        return ResetPrefixCache()

    def _drain_and_reset(self, world: World) -> Operation:
        for model in world.holders:
            self._planned.append(Finish(model.request_id, self._deferred()))
        self._planned.extend([ReturnDeferred()] * (world.num_popped + len(world.holders)))
        self._planned.extend([ReleaseHeld()] * world.num_held)
        self._planned.extend([NextStep(), *[ReleaseCopied()] * (world.num_copied + 1)])
        self._planned.append(ResetPrefixCache())
        return TakeEvents()

    def _unpin(self, world: World) -> Operation:
        return UnpinHeld()

    def _chunk(self) -> int:
        if self._chance(0.2):
            return self._rng.randint(1, self._style.chunk)
        return self._style.chunk

    def _deferred(self) -> bool:
        return self._chance(self._style.deferred_share)

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _pick(self, models: Iterable[RequestModel]) -> RequestModel | None:
        candidates = list(models)
        return self._rng.choice(candidates) if candidates else None


def _cuts(scenario: Scenario) -> list[int]:
    return [
        scenario.scheduler_block_size,
        scenario.scheduler_block_size,
        scenario.hash_block_size,
        *(group.block_size for group in scenario.groups),
    ]
