"""Plans of look-ups, loads and stores: which keys, from where, and into which blocks."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, Final, NamedTuple, TypeAlias

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as StockScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    RequestGroupState,
    RequestOffloadState,
)
from vllm.v1.kv_cache_interface import MambaSpec, SlidingWindowSpec
from vllm.v1.kv_offload.base import GPULoadStoreSpec, LookupResult
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import RequestStatus

from kvoxide._core_vllm import (
    OffloadLeavingPlan,
    OffloadLoadPlan,
    OffloadPlanner,
    VllmBlockIds,
    VllmRequestKeys,
)
from kvoxide.vllm.environment import counters, recognise_connector, settings
from kvoxide.vllm.offload.attributes import KeyPositions
from kvoxide.vllm.offload.manager import CPUOffloadingManager, request_of
from kvoxide.vllm.offload.safe_tier import guarded, unguarded

_HIT: Final = LookupResult.HIT
_HIT_PENDING: Final = LookupResult.HIT_PENDING
_MISS: Final = LookupResult.MISS
_RETRY: Final = LookupResult.RETRY

_HAS_LOOKUP_ENDS: Final = hasattr(RequestGroupState, "lookup_hit_end_chunk_idx")

LOOKUPS: Final = "kvoxide_host_lookups_total"
"""The metric of look-ups by result."""

_Run: TypeAlias = tuple[int, int, CacheHitSource]


class _Group(NamedTuple):
    group_idx: int
    tokens_per_block: int
    tokens_per_chunk: int
    sliding_window_size_in_chunks: int | None
    load_window_tokens: int | None
    is_eagle_group: bool
    is_state: bool


def _group(config: Any) -> _Group:
    spec = config.kv_cache_spec
    window = None
    if isinstance(spec, SlidingWindowSpec):
        window = spec.sliding_window - 1 + spec.extra_retained_tokens
    return _Group(
        config.group_idx,
        config.tokens_per_block,
        config.tokens_per_chunk,
        config.sliding_window_size_in_chunks,
        window,
        config.is_eagle_group,
        isinstance(spec, MambaSpec),
    )


@dataclass(frozen=True)
class Offer:
    """A group's chunks from ``first`` to before ``end``, of one block each. Wanted are those from
    ``start`` on that have a block and, if there is a ``mask``, that it has."""

    config: Any
    state: Any
    first: int
    start: int
    end: int
    mask: list[bool] | None

    @property
    def keys(self) -> Any:
        """The keys of all chunks of the group."""
        return self.state.offload_keys

    @property
    def block_ids(self) -> list[int]:
        """The blocks of all chunks of the group."""
        return self.state.block_ids  # type: ignore[no-any-return]

    def wanted(self) -> Iterator[bytes]:
        """Yield the keys of the wanted chunks, which are in a list."""
        keys, blocks = self.keys[self.start : self.end], self.block_ids[self.start : self.end]
        return compress(keys, blocks if self.mask is None else map(_both, blocks, self.mask))

    def blocks_of(self, accepted: set[bytes]) -> tuple[list[int], int]:
        """Return the blocks of the accepted keys, and the index of the first of them, else 0."""
        places = range(self.first, self.end)
        found = list(compress(places, map(accepted.__contains__, self.keys[self.first : self.end])))
        return [self.block_ids[at] for at in found], found[0] if found else 0


def _both(block_id: int, is_reached: bool) -> bool:
    return bool(block_id) and is_reached


class Stored(NamedTuple):
    """A store: the keys, the place in the tier, and the blocks of each group with the index of the
    first of them."""

    keys: Any
    spec: Any
    parts: Sequence[tuple[list[int], int]]


class Planner:
    """Plans for one connector. The keys of its requests are in Rust if only the tier reads them."""

    def __init__(self, connector: Any) -> None:
        """Plan for ``connector``, whose constructor of vLLM's has run."""
        self._connector, config = connector, connector.config
        self._manager = connector.manager
        self.has_sync_loads: bool = recognise_connector().release.has_sync_loads
        """Whether loads can be part of a step."""
        self.has_own_tier = type(self._manager) is CPUOffloadingManager
        """Whether the connector's manager is kvoxide's."""
        tier = self._manager.tier if self.has_own_tier else None
        describes_events = connector._events_tracker.self_describing_enabled
        self.looks_up = self.has_own_tier and not describes_events
        """Whether the tier answers look-ups without vLLM's methods."""
        self.keeps_keys = self.looks_up and not config.supports_partial_tail
        """Whether keys of requests are in Rust."""
        self._planner = OffloadPlanner(
            list(map(_group, config.kv_group_configs)),
            list(connector._lookup_groups),
            config.blocks_per_chunk,
            connector._mamba_align_size,
            unguarded(tier),
        )
        no_hit = 0, [0] * len(config.kv_group_configs)
        self._look_up = guarded(tier, self._planner.look_up, no_hit)
        self._store = guarded(tier, self._planner.store, None)
        self.end = guarded(tier, self._planner.end, None)
        self._look_up_in_both: Any = None
        self.store_leaving = guarded(tier, self._planner.store_leaving, (None, None, 0))
        """Returns the stores of blocks that the step takes from the pool, and of blocks that later
        steps can take soon. Of the latter, also returns how many a load asked for."""
        self.open_stores: dict[int, OffloadLeavingPlan] = {}
        """The running jobs of ``store_leaving`` for which no step has waited."""
        self.is_overwritten = guarded(tier, self._planner.is_overwritten, True)
        """Returns whether the pool has allocated a block again that a plan stores."""
        self.note_used = guarded(tier, self._planner.note_used, None)
        """Notes that a request uses cached blocks."""
        self.forget_stores = self._planner.forget_stores
        """Notes that the tier was reset."""
        # A shadow repeats the look-ups of vLLM's connector.
        self._counts_lookups = not settings.are_overridden()

    def decide_with(self, engine: Any) -> None:
        """Let the engine of kvoxide's manager decide together with the tier."""
        self._planner.decide_with(engine)
        no_hit = 0, [0] * len(self._connector.config.kv_group_configs)
        method = self._planner.look_up_in_both
        self._look_up_in_both = guarded(self._manager.tier, method, no_hit)

    def end_of_deciding(self) -> str | None:
        """Return why the manager cannot decide together with the tier any more; None if it can."""
        if getattr(self._manager.tier, "has_failed", False):
            return "the CPU offload cache failed"
        if not self._planner.decides_together():
            return "vLLM's own code manages the KV cache now"
        return None

    def decide_alone(self) -> None:
        """Let the manager and the tier decide alone."""
        self._look_up_in_both = None
        self._planner.stop_deciding()

    def start(self, state: Any) -> None:
        """Let the state of a new request extend its keys by new hashes alone."""
        if type(state) is not RequestOffloadState:
            return
        if not self.keeps_keys:
            state.__class__ = _RequestState
            return
        groups = state.config.kv_group_configs
        keys = VllmRequestKeys(
            [(group.group_idx, group.hashes_per_chunk, group.tokens_per_chunk) for group in groups]
        )
        for group_state, group_keys in zip(state.group_states, keys.groups(), strict=True):
            group_state.offload_keys = group_keys
        state.req_context._offload_key_positions = KeyPositions(keys)
        state.__class__ = _StateInRust

    def look_up(self, state: Any, max_num_new_tokens: int | None = None) -> int | None:
        """Return how many tokens after the local hit the tier has; None to ask again later."""
        num_tokens, most = state.req.num_tokens, state.max_load_tokens
        num_computed = state.num_locally_computed_tokens
        if min(num_computed, max_num_new_tokens or 0) < 0:
            # vLLM's own method makes something of it.
            stock = StockScheduler._lookup_complete_chunks
            return stock(self._connector, state, max_num_new_tokens)  # type: ignore[no-any-return]
        keys = [group.offload_keys for group in state.group_states]
        most = most if most is None else min(most, num_tokens)
        wanted = num_computed, num_tokens, max_num_new_tokens, most
        if self._look_up_in_both is None or not self._planner.decides_together():
            found, ends = self._look_up(keys, *wanted)
        else:
            found, ends = self._look_up_in_both(keys, request_of(state.req_context), *wanted)
        if self._counts_lookups:
            counters.add(LOOKUPS, result="later" if found is None else "hit" if found else "miss")
        if _HAS_LOOKUP_ENDS:
            for group, end in zip(state.group_states, ends, strict=True):
                group.lookup_hit_end_chunk_idx = end
        return found  # type: ignore[no-any-return]

    def load(
        self, state: Any, blocks: Any, num_tokens: int, is_sync: bool
    ) -> OffloadLoadPlan | None:
        """Return what a load of ``num_tokens`` after the local hit covers; None for what vLLM's
        own method has to do or to refuse."""
        start = state.num_locally_computed_tokens
        if state.partial_tail_boundary is not None or state.transfer_jobs:
            return None
        if min(start, num_tokens) < 0:
            return None
        return self._planner.load(
            [group.offload_keys for group in state.group_states],
            blocks,
            start,
            start + num_tokens,
            is_sync,
            request_of(state.req_context) if self.keeps_keys else None,
            self._connector._chunks_being_loaded is not None,
        )

    def source(self, plan: OffloadLoadPlan, state: Any) -> Any:
        """Return where a load comes from."""
        if plan.chunk_ids is None:
            return self._manager.prepare_load(plan.keys, state.req_context)
        return CPULoadStoreSpec(plan.chunk_ids)

    def store(self, state: Any, offered: Sequence[Offer]) -> Stored | None:
        """Return what is stored of the offers of a request; None if there is no room."""
        if self.keeps_keys:
            plan = self._store(request_of(state.req_context), offered)
            if plan is None:
                return None
            found = list(zip(plan.block_ids, plan.block_indices, strict=True))
            return Stored(plan.keys, CPULoadStoreSpec(plan.chunk_ids), found)
        wanted = list(chain.from_iterable(offer.wanted() for offer in offered))
        if not wanted:
            return Stored((), None, ())
        output = self._manager.prepare_store(wanted, state.req_context)
        if output is None:
            return None
        accepted = set(output.keys_to_store)
        parts = [offer.blocks_of(accepted) for offer in offered]
        return Stored(output.keys_to_store, output.store_spec, parts)

    def offers(self, state: Any, num_tokens: int, num_prompt_tokens: int) -> list[Offer] | None:
        """Return what a request whose ``num_tokens`` can be stored offers in each group;
        ``num_prompt_tokens`` of them can be of its prompt. None for what vLLM's own method has to
        find."""
        config, has_ended = self._connector.config, state.req.is_finished()
        boundaries = _boundaries(config, state.req)
        found = []
        for group, group_state in zip(config.kv_group_configs, state.group_states, strict=True):
            end = state.storable_chunks(group, group_state, num_tokens)
            prompt_end = num_prompt_tokens // group.tokens_per_chunk
            if has_ended and end != prompt_end and group.sliding_window_size_in_chunks is not None:
                # The last tail of a window may be another one than before.
                return None
            horizon = _horizon(config, group, end, end if has_ended else prompt_end)
            found.append(self._offer(group, group_state, end, horizon, boundaries))
        return found

    def _offer(
        self, config: Any, state: Any, end: int, horizon: int | None, boundaries: tuple[int, ...]
    ) -> Offer:
        first = state.next_stored_chunk_idx
        start = VllmBlockIds.first_not_null(state.block_ids, first, end)
        # States are handed over by vLLM's scheduler, not found in tables.
        if config.requires_cow_source or end <= start:
            return Offer(config, state, first, end, end, None)
        mask = self._connector._reachable_store_block_mask(
            group_config=config,
            start_chunk_idx=start,
            end_chunk_idx=end,
            final_segment_end_chunk_idx=horizon,
            reachable_boundaries=boundaries,
        )
        return Offer(config, state, first, start, end, mask)


def _boundaries(config: Any, req: Any) -> tuple[int, ...]:
    if config.retention_interval is None:
        return ()
    shared = (req.shared_prefix_boundary,) if req.shared_prefix_boundary else ()
    return (req.num_prompt_tokens - 1, *shared)


def _horizon(connector_config: Any, config: Any, end: int, last: int) -> int | None:
    """Return the chunk at which the last tail ends, ``last`` at most; None where only fixed tails
    count."""
    if connector_config.retention_interval is not None or config.is_eagle_group:
        return None
    return last if end <= last else None


class _RequestState(RequestOffloadState):  # type: ignore[misc]
    """The connector's state of a request. Only the step's new hashes cost time."""

    __slots__ = ()

    def update_offload_keys(self) -> None:
        hashes = self.req.block_hashes
        if type(hashes) is not list:
            super().update_offload_keys()
            return
        num_hashes = len(hashes)
        for config, state in zip(self.config.kv_group_configs, self.group_states, strict=False):
            keys, hashes_per_chunk = state.offload_keys, config.hashes_per_chunk
            end = (len(keys) + 1) * hashes_per_chunk
            if end > num_hashes:
                continue
            group = config.group_idx.to_bytes(4, "big")
            new = [block_hash + group for block_hash in hashes[end - 1 :: hashes_per_chunk]]
            size, num_known = config.tokens_per_chunk, len(keys) + 1
            ends = range(num_known * size, (num_known + len(new)) * size, size)
            self.req_context._offload_key_positions.update(zip(new, ends, strict=True))
            keys += new


class _StateInRust(RequestOffloadState):  # type: ignore[misc]
    """The connector's state of a request whose keys are in Rust."""

    __slots__ = ()

    def update_offload_keys(self) -> None:
        hashes, attributes = self.req.block_hashes, getattr(self.req, "__dict__", None)
        for group_state in self.group_states[:1]:
            keys = group_state.offload_keys
            keys.extend(hashes if type(hashes) is list else list(hashes), attributes)


def prefix_hits(answers: Iterable[LookupResult]) -> int | None:
    """Return how many of a manager's answers, each asked for when it is needed, are hits before
    the first miss; None to ask again later."""
    num_hits, is_later = 0, False
    for answer in answers:
        if answer is _HIT:
            num_hits += 1
        elif answer is _MISS:
            break
        elif answer is _HIT_PENDING:
            num_hits += 1
            is_later = True
        elif answer is _RETRY:
            is_later = True
    return None if is_later else num_hits


def window_hits(
    answers: Iterable[LookupResult], num_keys: int, window: int, first_window: int
) -> int | None:
    """Return the end of the last run of ``window`` hits among answers about keys, the last key
    first; the run at the end has to have ``first_window``. None to ask again later."""
    run, run_is_pending, is_later, wanted = 0, False, False, first_window
    for at, answer in zip(range(num_keys - 1, -1, -1), answers, strict=False):
        if answer is _HIT:
            run += 1
        elif answer is _HIT_PENDING:
            run += 1
            run_is_pending = True
        elif answer is _MISS or answer is _RETRY:
            run, run_is_pending, wanted = 0, False, window
            is_later = is_later or answer is _RETRY
        if run == wanted:
            run += at
            break
    return None if is_later or run_is_pending else run


def num_computed_after(req: Any, scheduled: Mapping[str, int]) -> int:
    """Return how many tokens of a request the GPU has after the step."""
    if req.status is RequestStatus.FINISHED_ABORTED:
        return int(req.num_computed_tokens)
    if req.is_finished():
        # The last sampled token was never computed.
        return int(max(req.num_prompt_tokens, req.num_tokens - 1))
    return int(req.num_computed_tokens) + scheduled[req.request_id]


def gpu_spec(block_ids: Any, sizes: Sequence[int], indices: Sequence[int]) -> GPULoadStoreSpec:
    """Return the blocks of all groups; of each, how many they are and the place of the first."""
    return GPULoadStoreSpec(block_ids, group_sizes=list(sizes), block_indices=list(indices))


def tokens_by_source(
    ranges: Iterable[tuple[int, int, bytes]],
    start: int,
    end: int,
    source_of: Callable[[bytes], Any] | None,
) -> dict[CacheHitSource, int]:
    """Return how many tokens from ``start`` to ``end`` came from which source, by the key of each
    range: ``source_of`` a key, in the order of the ranges, or the host's where it is None. Where
    ranges overlap, the tier farthest out counts."""
    unknown = CacheHitSource.EXTERNAL_UNSPECIFIED
    events: list[tuple[int, int, CacheHitSource]] = [(end, 0, unknown)]
    for first, last, source in _runs(ranges, start, end, source_of):
        events += (max(start, first), 1, source), (min(end, last), -1, source)
    found: dict[CacheHitSource, int] = {}
    active: Counter[CacheHitSource] = Counter()
    position = start
    for at, change, source in sorted(events):
        if at > position:
            covering = [tier for tier, count in active.items() if count > 0]
            tier = CacheHitSource.outermost(covering) if covering else unknown
            found[tier] = found.get(tier, 0) + at - position
        active[source] += change
        position = at
    return found


def _runs(
    ranges: Iterable[tuple[int, int, bytes]],
    start: int,
    end: int,
    source_of: Callable[[bytes], Any] | None,
) -> Iterator[_Run]:
    """Yield the ranges between ``start`` and ``end``. Adjacent ranges of one tier are merged."""
    first, last, tier = start, start, CacheHitSource.HOST
    source: Any = tier
    for low, high, key in ranges:
        if low >= end or high <= start or low >= high:
            continue
        if source_of is not None:
            source = CacheHitSource(source_of(key))
        if low == last and source is tier:
            last = high
            continue
        if first < last:
            yield first, last, tier
        first, last, tier = low, high, source
    if first < last:
        yield first, last, tier
