"""The calls that operations consist of. They go to both sides and keep the model up to date."""

from kvoxide.lab.verify.managers.driver import Allocation, BlockIds, Demand, Hit
from kvoxide.lab.verify.managers.world import RequestModel, Step, World


def known_groups(world: World, group_ids: tuple[int, ...]) -> list[int]:
    return [group_id for group_id in group_ids if group_id < len(world.scenario.groups)]


def look_up(world: World, model: RequestModel, max_hit: int | None, for_connector: bool) -> Hit:
    bound = None if max_hit is None else min(max_hit, longest_look_up(world, model))
    hit = world.call_for(
        model, "get_computed_blocks", lambda d: d.look_up(model.request_id, bound, for_connector)
    )
    alignment = world.scenario.scheduler_block_size
    world.coverage.note_hit(hit.num_tokens, alignment, hit.shared_prefix_boundary)
    return hit


def longest_look_up(world: World, model: RequestModel) -> int:
    """Return the longest allowed look-up. vLLM reads past the end of the hashes if a bound exceeds
    them."""
    num_hashed = len(model.block_hashes) * world.scenario.hash_block_size
    return max(num_hashed, model.num_tokens - 1)


def truncate(world: World, model: RequestModel, hit: Hit, share: float) -> int:
    alignment = world.scenario.scheduler_block_size
    num_tokens = int(hit.num_tokens // alignment * share) * alignment
    truncate_to(world, model, num_tokens)
    return num_tokens


def truncate_to(world: World, model: RequestModel, num_tokens: int) -> None:
    world.call("truncate_computed_blocks", lambda d: d.truncate_hit(model.request_id, num_tokens))


def blocks_needed(world: World, model: RequestModel, hit: Hit, num_computed: int) -> None:
    demand = Demand(
        num_tokens=model.num_tokens,
        with_hit=True,
        total_computed_tokens=num_computed,
        num_local_computed_tokens=num_computed,
        apply_admission_cap=world.scenario.aligns_states or hit.num_tokens % 2 == 0,
        num_encoder_tokens=model.num_encoder_tokens,
        prefill_end=model.prefill_end,
    )
    world.call("blocks_needed", lambda d: d.blocks_needed(model.request_id, demand))


def blocks_still_needed(world: World, model: RequestModel, capped: bool) -> None:
    demand = Demand(
        num_tokens=model.num_tokens,
        with_hit=False,
        total_computed_tokens=model.num_computed_tokens,
        num_local_computed_tokens=model.num_computed_tokens,
        apply_admission_cap=capped,
        prefill_end=model.prefill_end,
    )
    world.call("blocks_needed", lambda d: d.blocks_needed(model.request_id, demand))


def allocate(world: World, model: RequestModel, allocation: Allocation) -> BlockIds | None:
    blocks = world.call_for(
        model, "allocate_slots", lambda d: d.allocate(model.request_id, allocation)
    )
    if blocks is None:
        world.last_refused = model.request_id
        world.coverage.seen["allocation refused"] += 1
        return None
    world.coverage.seen["allocation with external tokens"] += (
        allocation.num_external_computed_tokens > 0
    )
    model.holds_blocks = True
    world.scheduled.add(model.request_id)
    return blocks


def schedule(model: RequestModel, num_tokens: int, num_draft_tokens: int) -> None:
    model.status = "RUNNING"
    model.num_computed_tokens += num_tokens
    model.num_in_flight_tokens += num_tokens
    samples = model.num_computed_tokens >= model.num_tokens_with_placeholders
    if samples:
        model.num_output_placeholders += 1 + num_draft_tokens
    model.steps.append(Step(num_tokens, num_draft_tokens, samples))


def resume_below_hit(world: World, model: RequestModel) -> None:
    replay = min(world.scenario.replay_window, model.num_computed_tokens)
    if replay:
        model.num_computed_tokens -= replay
    elif model.num_computed_tokens == model.num_tokens:
        model.num_computed_tokens -= 1


def free(world: World, model: RequestModel, deferred: bool) -> None:
    request_id = model.request_id
    model.holds_blocks = False
    if deferred:
        world.call_for(model, "pop_blocks_for_free", lambda d: d.pop_blocks(request_id))
        world.num_popped += 1
    else:
        world.call_for(model, "free", lambda d: d.free(request_id))


def cache(world: World, model: RequestModel, num_tokens: int) -> None:
    world.call_for(model, "cache_blocks", lambda d: d.cache_blocks(model.request_id, num_tokens))


def remove_skipped(world: World, model: RequestModel) -> None:
    request_id, processed = model.request_id, model.num_processed_tokens
    num_prompt_tokens = model.num_prompt_tokens
    world.call(
        "remove_skipped_blocks",
        lambda d: d.remove_skipped(request_id, processed, num_prompt_tokens),
    )


def show_table(world: World, model: RequestModel) -> None:
    request_id, computed = model.request_id, model.num_computed_tokens
    world.call("get_blocks", lambda d: d.table_views(request_id, computed))


def record_for_zeroing(world: World, model: RequestModel, start_token: int) -> None:
    request_id = model.request_id
    world.call("record_blocks_for_zeroing", lambda d: d.record_for_zeroing(request_id, start_token))
