"""The calls that are the same for all managers: managers with vLLM's interface, and the standalone
one."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from kvoxide.lab.verify.managers.driver import (
    STATS_FIELDS,
    Allocation,
    BlockIds,
    Copies,
    Hit,
    Offloads,
    PoolState,
    Progress,
    TableViews,
)


class CommonDriver:
    """Drives ``manager``. ``status_class`` has the states of its requests by name."""

    status_class: Any

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self._pool = manager.block_pool
        self._requests: dict[str, Any] = {}
        self._hits: dict[str, Any] = {}
        self._popped: deque[list[Any]] = deque()
        self._held: deque[list[Any]] = deque()
        self._copied: deque[list[Any]] = deque()

    def set_progress(self, request_id: str, progress: Progress) -> None:
        request = self._requests[request_id]
        request.num_computed_tokens = progress.num_computed_tokens
        request.num_in_flight_tokens = progress.num_in_flight_tokens
        request.shared_prefix_boundary = progress.shared_prefix_boundary
        request.num_preemptions = progress.num_preemptions
        request.status = getattr(self.status_class, progress.status)

    def forget(self, request_id: str) -> None:
        del self._requests[request_id]
        self._hits.pop(request_id, None)

    def look_up(self, request_id: str, max_hit: int | None, for_connector: bool) -> Hit:
        arguments = (self._requests[request_id], *(() if max_hit is None else (max_hit,)))
        diverged = False
        if for_connector:
            found = self.manager.get_computed_blocks_for_connector(*arguments)
            blocks, num_tokens, boundary, diverged = found
        else:
            blocks, num_tokens, boundary = self.manager.get_computed_blocks(*arguments)
        self._hits[request_id] = blocks
        return Hit(ids_of(blocks), num_tokens, boundary, diverged)

    def truncate_hit(self, request_id: str, num_tokens: int) -> BlockIds:
        hit = self.manager.truncate_computed_blocks(self._hits[request_id], num_tokens)
        self._hits[request_id] = hit
        return ids_of(hit)

    def allocate(self, request_id: str, allocation: Allocation) -> BlockIds | None:
        skipped = allocation.skip_zeroing_group_ids
        zeroing = {"skip_zeroing_group_ids": skipped} if skipped else {}
        blocks = self.manager.allocate_slots(
            self._requests[request_id],
            allocation.num_new_tokens,
            num_new_computed_tokens=allocation.num_new_computed_tokens,
            new_computed_blocks=self._hit_blocks(request_id, allocation),
            num_lookahead_tokens=allocation.num_lookahead_tokens,
            num_external_computed_tokens=allocation.num_external_computed_tokens,
            delay_cache_blocks=allocation.delay_cache_blocks,
            full_sequence_must_fit=allocation.full_sequence_must_fit,
            reserved_blocks=allocation.reserved_blocks,
            has_scheduled_reqs=allocation.has_scheduled_reqs,
            **zeroing,
            num_encoder_tokens=allocation.num_encoder_tokens,
        )
        return None if blocks is None else ids_of(blocks)

    def _hit_blocks(self, request_id: str, allocation: Allocation) -> Any:
        empty = self.manager.empty_kv_cache_blocks
        match allocation.hit_form:
            case "none":
                return None
            case "empty":
                return empty
            case "new_empty":
                return empty.new_empty()
            case "padded":
                return self._hits[request_id] + empty.new_empty()
            case "rebuilt":
                return self.manager.create_kv_cache_blocks(self._hits[request_id].blocks)
            case "hit":
                return self._hits[request_id]

    def cache_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        self.manager.cache_blocks(self._requests[request_id], num_computed_tokens)

    def remove_skipped(
        self, request_id: str, processed_tokens: int, num_prompt_tokens: int | None
    ) -> None:
        self.manager.remove_skipped_blocks(request_id, processed_tokens, num_prompt_tokens)

    def free(self, request_id: str) -> None:
        self.manager.free(self._requests[request_id])

    def pop_blocks(self, request_id: str) -> list[int]:
        blocks = self.manager.pop_blocks_for_free(self._requests[request_id])
        self._popped.append(blocks)
        return block_ids_of(blocks)

    def return_popped(self) -> None:
        self._pool.free_blocks(reversed(self._popped.popleft()))

    def block_ids(self, request_id: str) -> BlockIds:
        ids: BlockIds = self.manager.get_block_ids(request_id)
        return ids

    def table_views(self, request_id: str, num_computed_tokens: int) -> TableViews:
        blocks = self.manager.get_blocks(request_id)
        num_groups = self._num_groups(blocks)
        return TableViews(
            for_computed_tokens=self.manager.get_block_ids_for_computed_tokens(
                request_id, num_computed_tokens
            ),
            selected=blocks.get_block_ids(allow_none=True, group_ids=range(0, num_groups, 2)),
            unhashed=blocks.get_unhashed_block_ids_all_groups(),
            as_arrays=self._as_arrays(blocks),
            as_blocks=[[(b.block_id, b.ref_cnt, b.is_null) for b in g] for g in blocks.blocks],
            num_groups=num_groups,
        )

    def _num_groups(self, blocks: Any) -> int:
        return len(blocks.blocks)

    def _as_arrays(self, blocks: Any) -> BlockIds:
        return ids_of(blocks)

    def estimate_cached_tokens(self, request_id: str) -> int:
        tokens: int = self.manager.estimate_cached_tokens(self._requests[request_id])
        return tokens

    def num_common_prefix_blocks(self, request_id: str) -> list[int]:
        blocks: list[int] = self.manager.get_num_common_prefix_blocks(request_id)
        return blocks

    def evict(self, block_ids: list[int]) -> None:
        self.manager.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        is_reset: bool = self.manager.reset_prefix_cache()
        return is_reset

    def take_new_block_ids(self) -> list[int]:
        block_ids: list[int] = self.manager.take_new_block_ids()
        return block_ids

    def record_for_zeroing(self, request_id: str, start_token: int) -> None:
        self.manager.record_blocks_for_zeroing(request_id, start_token)

    def record_stats(self, request_id: str, num_hits: int) -> None:
        self.manager.record_prefix_cache_stats(self._requests[request_id], num_hits)

    def take_stats(self) -> dict[str, int] | None:
        stats = self.manager.make_prefix_cache_stats()
        return None if stats is None else {name: getattr(stats, name) for name in STATS_FIELDS}

    def start_step(self) -> None:
        self.manager.new_step_starts()

    def take_copies(self) -> Copies:
        copies, kept = self.manager.take_kv_cache_block_copies()
        if kept:
            self._copied.append(kept)
        pairs = [(copy.src_block_id, copy.dst_block_id) for copy in copies]
        return Copies(pairs, block_ids_of(kept))

    def release_copied(self) -> None:
        self._pool.free_blocks(self._copied.popleft())

    def take_offloads(self) -> Offloads:
        return dict(self.manager.take_boundary_state_offloads())

    def finalize_tails(self, request_id: str) -> list[tuple[int, int, int]]:
        return list(self.manager.finalize_partial_tail_offloads(self._requests[request_id]))

    def cached_block(self, block_hash: bytes, group_ids: list[int]) -> list[int] | None:
        blocks = self._pool.get_cached_block(block_hash, group_ids)
        return None if blocks is None else block_ids_of(blocks)

    def hold_cached(self, block_hash: bytes, group_ids: list[int]) -> list[int] | None:
        blocks = self._pool.get_cached_block(block_hash, group_ids)
        if blocks is None:
            return None
        self._pool.touch(blocks)
        self._held.append(blocks)
        return block_ids_of(blocks)

    def take_blocks(self, num_blocks: int) -> list[int]:
        blocks = self._pool.get_new_blocks(num_blocks)
        self._held.append(blocks)
        return block_ids_of(blocks)

    def release_held(self) -> None:
        self._pool.free_blocks(self._held.popleft())

    def num_free_blocks(self) -> int:
        num_blocks: int = self._pool.get_num_free_blocks()
        return num_blocks

    def state(self) -> PoolState:
        blocks = list(self._pool.blocks)
        return PoolState(
            free_queue=self._free_queue(),
            num_free_blocks=self._pool.get_num_free_blocks(),
            usage=self.manager.usage,
            ref_counts=[b.ref_cnt for b in blocks],
            block_hashes=[b.block_hash for b in blocks],
            block_hash_num_tokens=[b.block_hash_num_tokens for b in blocks],
        )

    def _free_queue(self) -> list[int]:
        raise NotImplementedError


def ids_of(blocks: Any) -> BlockIds:
    ids: BlockIds | None = blocks.get_block_ids()
    assert ids is not None
    return ids


def block_ids_of(blocks: Iterable[Any]) -> list[int]:
    return [block.block_id for block in blocks]
