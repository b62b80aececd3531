"""The part of the compiled module that only :mod:`kvoxide.vllm` uses.

There is no file of this name: importing :mod:`kvoxide._core` creates this module. Token counts and
positions are in tokens, block counts and ids in blocks. Block id 0 is the null block.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, final, overload

import numpy as np
from numpy.typing import NDArray

from kvoxide._core import (
    HashAlgorithm,
    HostRequest,
    HostTier,
    KVCacheConfig,
    Policy,
    _BlockLists,
    _BlockPool,
    _Manager,
)

@final
class VllmBlock:
    """A view of one block of a :class:`VllmManager`, with the attributes of vLLM's
    ``KVCacheBlock``. Setting ``ref_cnt`` changes the engine's count and nothing else. Setting
    another attribute first replaces the engine by vLLM's own objects. Then the view delegates
    everything to vLLM's object."""

    ref_cnt: int
    _block_hash: Any
    _block_hash_num_tokens: Any
    is_null: Any
    prev_free_block: Any
    next_free_block: Any
    @property
    def block_id(self) -> int: ...
    @property
    def block_hash(self) -> bytes | None: ...
    @property
    def block_hash_num_tokens(self) -> int | None: ...
    @property
    def pool(self) -> Any: ...
    def set_block_hash(self, block_hash: bytes, num_tokens: int | None = None) -> None: ...
    def reset_hash(self) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class VllmBlockSequence:
    """Every block of a pool."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> VllmBlock: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[VllmBlock]: ...
    def __iter__(self) -> Iterator[VllmBlock]: ...
    def __contains__(self, block: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def index(self, block: Any) -> int: ...

@final
class VllmFreeWalk:
    """Iterates over the free blocks, and reads the queue anew for each."""

    def __iter__(self) -> VllmFreeWalk: ...
    def __next__(self) -> VllmBlock: ...

@final
class VllmPoolCloser:
    """Drops the views of blocks when the pool that holds this object ends."""

@final
class VllmQueueEnd:
    """The sentinel before the first block of the free queue, or after the last one."""

    @property
    def block_id(self) -> int: ...
    @property
    def ref_cnt(self) -> int: ...
    @property
    def is_null(self) -> bool: ...
    @property
    def pool(self) -> None: ...
    @property
    def block_hash(self) -> None: ...
    @property
    def block_hash_num_tokens(self) -> None: ...
    prev_free_block: Any
    next_free_block: Any

@final
class VllmBlocks(_BlockLists):
    """Blocks per group, with the interface of vLLM's ``KVCacheBlocks``. Equal to every object with
    equal ``blocks``."""

    @property
    def blocks(self) -> tuple[Sequence[VllmBlock], ...]: ...
    def new_empty(self) -> VllmBlocks: ...
    def __add__(self, other: Any, /) -> VllmBlocks: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class VllmBlockNumbers:
    """Numbers block hashes from 0, in the order in which the hashes first appear.

    It remembers the hashes that it saw last, at least ``per_generation`` (3,670,016) and at most
    twice as many, in 20 to 40 bytes each. A hash that comes back later gets another number. Raises
    ``ValueError`` for 0. With ``has_samples``, it notes which blocks adaptive retention samples.
    """

    def __new__(cls, per_generation: int = ..., has_samples: bool = False) -> Self: ...
    def __len__(self) -> int:
        """Return how many hashes are known."""
    def of_request(
        self, hashes: list[bytes], num_known: int, num_prompt: int
    ) -> tuple[bytes, bytes]:
        """Return the numbers of a prompt of ``num_prompt`` blocks, and of the blocks after it, as
        two arrays in JSON. The first ``num_known`` hashes have the numbers of their hashes. The
        other blocks of the prompt get unique numbers."""
    def take_sampled(self) -> list[list[int]]:
        """Return the new numbers of sampled blocks since the last call: those that are sampled at
        one density, at two and at three."""

@final
class VllmGrantedHints:
    """Reads the hints that requests were granted, for recordings. Sessions have numbers from 0, in
    the order of their first use. It remembers the sessions that it saw last, at least 262,144.

    ``max_priority`` is the highest priority that a request may get; 0 ignores all hints.
    """

    def __new__(cls, max_priority: int) -> Self: ...
    def of_request(self, request: Any) -> dict[str, Any]:
        """Return the fields of a recorded request that describe its session and hints.

        ``request`` has vLLM's attributes ``num_prompt_tokens``, ``session_id``,
        ``sampling_params`` and ``kv_hints``.
        """

@final
class VllmBlockHasher:
    """Hashes blocks of vLLM's requests for :mod:`kvoxide.vllm`. Long calls release the GIL.

    ``block_size`` is the tokens per hash. Each hash also covers ``num_lookahead_tokens`` tokens
    after its block. Raises :class:`ConfigError` for a block size below 1 or an unknown algorithm.
    """

    def __new__(
        cls, block_size: int, algorithm: HashAlgorithm, num_lookahead_tokens: int = 0
    ) -> VllmBlockHasher: ...
    def hash_blocks(
        self,
        parent: Any,
        tokens: Any,
        start: int,
        num_blocks: int,
        keys: list[Any] | None = None,
    ) -> list[bytes]:
        """Return the hashes of ``num_blocks`` blocks of the list ``tokens``, from token ``start``
        on. The result is shorter if a block cannot be encoded exactly as vLLM does, or lacks tokens
        or lookahead tokens. It ends before this block.

        ``parent`` is the hash before the first block. ``keys`` has the extra keys of each block.
        Its last entry also holds for all blocks after it.
        """
    def hash_prompt(
        self, parent: Any, tokens: Any, num_blocks: int, keys: list[Any] | None = None
    ) -> tuple[list[bytes], VllmHashChain | None]:
        """Return :meth:`hash_blocks` from token 0 on. Many hashes of 32 bytes are also kept in
        Rust."""

@final
class VllmHashChain:
    """Hashes of a prompt in Rust. A request's ``_kvoxide_chain_end`` has them for
    :class:`VllmManager` and :class:`VllmRequestKeys`. A pickle of it is ``None``."""

    def __len__(self) -> int: ...

@final
class VllmEventClasses:
    """vLLM's event classes, and the other parts of vLLM that decide the content of events.

    ``removed`` is called with the block hashes, the medium and the group, in this order.
    ``embedded_keys`` is called with a request that has prompt embeddings, the first token of each
    block, the tokens per block, the lookahead tokens, and the first multimodal input to look at. It
    returns the extra keys of each block as events publish them. ``envs`` has vLLM's environment
    variables as attributes.
    """

    def __new__(
        cls,
        *,
        stored: type,
        removed: Callable[[list[Any], Any, int], Any],
        cleared: Callable[[], Any],
        envs: object,
        embedded_keys: Callable[[Any, list[int], int, int, int], list[Any]],
    ) -> VllmEventClasses: ...

@final
class VllmEvents:
    """Events that were taken from the engine, at least one."""

    def as_vllm(
        self, classes: VllmEventClasses, request: Any, medium: Any, num_lookahead_tokens: int
    ) -> list[Any]:
        """Return objects of vLLM's classes. Stored blocks are blocks of ``request``."""

@final
class VllmManager(_Manager[Any, VllmBlock, Any], _BlockPool[Any]):
    """The engine of :mod:`kvoxide.vllm`. It reads vLLM's requests, with one call into Rust for each
    call of the manager.

    ``waiting_states`` are the request states that the watermark applies to. ``num_tokens`` is a
    property of this name and the attribute whose length it is; the engine does not call the
    property on a request that has it. ``max_priority`` is the highest priority that a request may
    get; 0 ignores all hints. ``older_rules`` has names of rules of older releases of vLLM
    (:func:`kvoxide._core.older_rules`). Requests are identified by their id. Of a request, only new
    hashes are read. Refusals are exceptions of the built-in classes that vLLM raises:
    ``ValueError``, ``AssertionError``, ``IndexError``. Every invariant is checked after each
    ``check_every``-th call that may change something, never with 0. A broken invariant is a
    :class:`PoisonedError`.
    """

    def __new__(
        cls,
        kv_cache_config: KVCacheConfig,
        *,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        max_in_flight_tokens: int,
        enable_caching: bool,
        use_eagle: bool,
        drops_flagged_groups: bool,
        dcp_world_size: int,
        num_hash_lookahead_tokens: int,
        enable_mamba_shared_prefix_checkpoint: bool,
        recaches_known_tail: bool,
        num_prefill_lookahead: int,
        enable_kv_cache_events: bool,
        watermark: float,
        policy: Policy,
        keep_tail_below_boundary: bool,
        counts_null_references: bool,
        observe: bool,
        waiting_states: Sequence[Any],
        older_rules: Sequence[str],
        num_tokens: tuple[object, str] | None = None,
        max_priority: int = 100,
        check_every: int = 0,
    ) -> VllmManager: ...
    @property
    def is_replaced(self) -> bool:
        """Whether vLLM's own objects replaced this engine. It then refuses most calls."""
    @property
    def is_poisoned(self) -> bool:
        """Whether the engine failed. It then refuses every call."""
    @property
    def num_blocks(self) -> int: ...
    def count_blocks(self) -> tuple[int, int, int, int]:
        """Return the number of blocks in use, of evictable, of protected and of empty blocks. Takes
        time proportional to the pool."""
    def time_calls(self) -> None:
        """Start to time about one in 64 calls of the scheduler."""
    def call_seconds(self) -> tuple[list[float], dict[str, tuple[list[int], float]]]:
        """Return the upper bounds of buckets in seconds. For each call, return how many timed calls
        are in each bucket and how many seconds they took. The last bucket has no bound."""
    def set_facade(self, pool: Any) -> VllmPoolCloser:
        """Set the object that represents the block pool; only a weak reference is kept. The pool
        must keep the returned object for as long as it lives. Raises :class:`BlockError` if there
        is a pool already."""
    def poison(self, reason: str) -> None:
        """Refuse every further call with :class:`PoisonedError`, whose message is ``reason``."""
    def empty_blocks(self) -> VllmBlocks: ...
    def free(self, request_id: str, request: Any = None) -> None:
        """Release the blocks of a request. If ``request`` is given and has not finished, it was
        preempted. Then it gives no blocks up, and its session does not end."""
    def pop_blocks_for_free(
        self, request_id: str, with_null_head: bool, request: Any = None
    ) -> list[VllmBlock]:
        """Forget a request and return its blocks. ``request`` is as for :meth:`free`."""
    def hint_counts(self) -> dict[str, dict[str, int]]:
        """Return how many hints requests gave, by kind and by result, without zeros. Kinds and
        results are the labels of the metric ``kvoxide_hints_total``."""
    def get_blocks(
        self, request_id: str, tables: tuple[dict[str, Any], ...] | None = None
    ) -> VllmBlocks:
        """Return the blocks of a request. With the tables of all groups, ``blocks`` are their
        lists."""
    def estimate_cached_tokens(self, request_id: str) -> int: ...
    def num_common_prefix_blocks(self, request_id: str) -> list[int]:
        """Return, for each group that needs the whole prefix, how many leading blocks of a request
        all requests hold; 0 for other groups and for a request that holds nothing."""
    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[Sequence[Any]],
        num_encoder_tokens: int,
        total_computed_tokens: int,
        num_local_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        prefill_end: int = 0,
    ) -> int: ...
    def find_longest_cache_hit(
        self, hashes: Any, max_cache_hit_length: int
    ) -> tuple[VllmBlocks, int, int]: ...
    def find_longest_cache_hit_per_group(
        self, hashes: Any, max_cache_hit_length: int
    ) -> tuple[VllmBlocks, list[int]]: ...
    def finalize_partial_tail_offloads(
        self, request: Any, request_id: str
    ) -> list[tuple[int, int, int]]: ...
    def wrap_blocks(self, blocks: Sequence[Sequence[Any]]) -> VllmBlocks: ...
    def request_ids(self) -> list[str]: ...
    def table_len(self, request_id: str, group: int) -> int | None: ...
    def sync_table(self, request_id: str, group: int, row: list[Any], rows: dict[str, Any]) -> bool:
        """Keep an empty list equal to the table of a request, and put it into ``rows`` until the
        request is freed. Return False for a request without blocks."""
    def write_row(self, request_id: str, group: int, blocks: Iterable[Any]) -> None:
        """Replace a table. Raises ``ValueError`` for a block that is in it twice or is free, and
        for a block with references from other tables alone."""
    def sync_num_cached(self, group: int, counts: dict[str, int]) -> None:
        """Keep an empty dictionary equal to the numbers of cached blocks of a group's requests."""
    def sync_checkpoints(self, group: int, checkpoints: dict[str, tuple[int, int]]) -> None:
        """Keep an empty dictionary equal to the states inside a group's running chunks."""
    def write_num_cached(self, request_id: str, group: int, num_cached: int | None) -> None: ...
    def sync_alias_keys(self, keys: dict[int, set[bytes]]) -> None:
        """Keep an empty dictionary equal to the alias keys of blocks."""
    def set_retention_interval(self, interval: int | None) -> None: ...
    def set_num_free_blocks(self, n: int) -> None: ...
    def num_keys(self) -> int: ...
    def block(self, index: int) -> VllmBlock: ...
    def get_cached_block(self, hash: bytes, groups: Sequence[int]) -> list[VllmBlock] | None: ...
    def blocks(self) -> VllmBlockSequence:
        """Every block. The pool's attribute ``blocks`` becomes a list once many blocks are read."""
    def block_of_key(self, key: bytes) -> VllmBlock | None: ...
    def find_key(self, key: bytes) -> int | None: ...
    def block_has_key(self, block: int, key: bytes) -> bool: ...
    def blocks_of_key(self, key: bytes) -> list[int]: ...
    def keys(self) -> list[bytes]: ...
    def keys_of_block(self, block: int) -> list[bytes]: ...
    def insert_key(self, block: int, key: bytes, num_tokens: int | None) -> None: ...
    def remove_keys(self, block: int) -> list[bytes]: ...
    def unpin_blocks(self, blocks: Iterable[Any]) -> None: ...
    def evict_blocks(self, block_ids: Sequence[int]) -> None: ...
    def queue_ends(self) -> tuple[VllmQueueEnd, VllmQueueEnd] | None:
        """The sentinels before the first free block and after the last; None without a pool."""
    def free_blocks_list(self) -> list[VllmBlock]: ...
    def walk_free_blocks(self, block: VllmBlock | None = None) -> VllmFreeWalk:
        """Return the free blocks after one, or all of them."""
    def unqueue_one(self) -> VllmBlock:
        """Take the first free block out of the queue. Raises ``ValueError`` if no block is free."""
    def unqueue_first(self, n: int) -> list[VllmBlock]:
        """Take the first ``n`` free blocks out of the queue. Raises ``AssertionError`` if fewer are
        free."""
    def unqueue(self, block: Any) -> None:
        """Take a block out of the queue. Raises ``RuntimeError`` if the block is not in it."""
    def enqueue(self, blocks: Iterable[Any], at_front: bool) -> None:
        """Put blocks without references at an end of the queue, in their order. Raises
        ``ValueError``, and changes nothing, if a block is in the queue already, is referenced, or
        is in the table of a request."""
    def queue_for_vllm(self) -> tuple[list[int], list[int]]:
        """Return the free blocks in their order, and the reference count of every block."""
    def cached_for_vllm(self) -> list[tuple[int, int | None, list[bytes]]]:
        """Return each cached block: its id, the tokens that its hash covers, and its keys."""
    def group_for_vllm(self, group: int) -> dict[str, Any]:
        """Return the state of a group by the names of vLLM's attributes, with ids of blocks."""
    def replace(self, manager: Any, blocks: Sequence[Any], ends: tuple[Any, Any]) -> list[Any]:
        """Let vLLM's ``manager`` continue with ``blocks`` and the sentinels ``ends``, and refuse
        further calls. Return the blocks. A block that was read before is its view, which delegates
        everything to vLLM's object."""
    def take_events(self) -> VllmEvents | None: ...
    def observe(self) -> None: ...
    def take_observations(self) -> list[tuple[str, int]]: ...

@final
class VllmBlockIds:
    """A set of block ids. It never contains the null block's id."""

    def __new__(cls) -> Self: ...
    def update(self, block_ids: list[int]) -> None: ...
    def update_from(self, blocks: VllmBlocks) -> None: ...
    def contained_of(self, block_ids: dict[int, Any]) -> list[int]:
        """Return which of ``block_ids`` are in the set."""
    def forget_in(
        self,
        states: dict[str, Any],
        groups: Sequence[int],
        blocks_per_chunk: int,
        num_before: Mapping[str, Sequence[int]],
    ) -> None:
        """Replace ids of the set by the null block's id in the lists of requests in windowed
        ``groups``. This applies to blocks after the chunks that a request stored, and before
        ``num_before`` of its blocks in each group, if it has such numbers."""
    @staticmethod
    def first_not_null(block_ids: list[int], start: int, end: int) -> int:
        """Return the position of the first id in ``block_ids[start:end]`` that is not the null
        block's, or ``end``."""
    def __contains__(self, block_id: int, /) -> bool: ...
    def __len__(self) -> int: ...

@final
class VllmRequestKeys:
    """The keys of a request's chunks in every group. A key is a block hash and a group. ``groups``
    has the id of each group, its hashes per chunk and its tokens per chunk. Raises ``ValueError``
    for no group."""

    def __new__(cls, groups: Sequence[tuple[int, int, int]]) -> Self: ...
    def extend(self, hashes: list[bytes], attributes: dict[str, Any] | None = None) -> None:
        """Read the request's block hashes after the ones that were read before. Hashes that its
        ``attributes`` have as :class:`VllmHashChain` are shared. Raises
        :class:`~kvoxide.BlockHashError` for hashes of 32 bytes together with shorter ones, and for
        longer hashes."""
    def groups(self) -> list[VllmGroupKeys]: ...
    def position(self, key: bytes) -> int | None:
        """Return the tokens up to the end of the chunk of ``key``, if it is here."""

@final
class VllmGroupKeys(Sequence[bytes]):
    """The keys of a group. They grow with the keys of their request."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> bytes: ...
    @overload
    def __getitem__(self, index: slice, /) -> VllmChunkKeys: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def extend(self, hashes: list[bytes], attributes: dict[str, Any] | None = None) -> None:
        """Call :meth:`VllmRequestKeys.extend`, for all groups."""

@final
class VllmChunkKeys(Sequence[bytes]):
    """The keys of some chunks of a request. A :class:`~kvoxide.HostTier` takes them without
    conversion."""

    @staticmethod
    def joined(parts: Sequence[VllmChunkKeys]) -> VllmChunkKeys:
        """Return the keys of all parts together. Raises ``ValueError`` for keys of different
        requests, and for no part."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> bytes: ...
    @overload
    def __getitem__(self, index: slice, /) -> VllmChunkKeys: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __add__(self, other: Iterable[bytes], /) -> list[bytes]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class OffloadPlanner:
    """Plans for the scheduler's side of an offloading connector, in one call each.

    A group has the attributes ``group_idx``, ``tokens_per_block``, ``tokens_per_chunk``,
    ``sliding_window_size_in_chunks``, ``load_window_tokens``, ``is_eagle_group`` and ``is_state``.
    ``order`` has the groups with full attention first, then windows. ``align_size`` divides a hit
    before windows shorten it. Raises ``ValueError`` for sizes of 0 and unknown groups.
    """

    def __new__(
        cls,
        groups: Sequence[Any],
        order: Sequence[int],
        blocks_per_chunk: int,
        align_size: int | None = None,
        tier: HostTier | None = None,
    ) -> Self: ...
    def look_up(
        self,
        keys: Sequence[VllmGroupKeys | list[bytes]],
        num_computed: int,
        num_tokens: int,
        max_new: int | None = None,
        max_load: int | None = None,
    ) -> tuple[int | None, list[int]]:
        """Return how many tokens beyond ``num_computed`` the tier has of a request with
        ``num_tokens``, ``None`` to ask again later, and for each group with full attention the
        chunk after the last one that was found. ``keys`` has the keys of each group. Raises
        ``AssertionError`` if a group has fewer keys than the request has chunks."""
    def load(
        self,
        keys: Sequence[VllmGroupKeys | list[bytes]],
        blocks: Any,
        num_computed: int,
        num_cached: int,
        is_sync: bool,
        request: HostRequest | None = None,
        notes_loading: bool = False,
    ) -> OffloadLoadPlan | None:
        """Return what a load of the tokens after ``num_computed`` up to ``num_cached`` covers;
        ``None`` for what vLLM's own method has to do or to refuse.

        With a ``request``, whose keys are in Rust, the tier has prepared the load and, unless it is
        part of the step (``is_sync``), noted that its keys are being loaded if ``notes_loading``.
        Raises ``AssertionError`` for keys that the tier cannot load."""
    def store(self, request: HostRequest, offers: Sequence[Any]) -> OffloadStorePlan | None:
        """Give a chunk to each offered key that the tier does not have, and return what is to be
        stored; ``None`` if there is no room.

        An offer of a group has the attributes ``keys``, which are in Rust, ``block_ids``,
        ``start``, ``end`` and ``mask``: the chunks from ``start`` to before ``end`` whose block is
        not the null block and, if there is a ``mask``, that it has. Raises ``AssertionError`` for
        keys that an ended request did not see."""
    def end(self, keys: Any, is_store: bool, is_success: bool = True) -> None:
        """End a transfer of keys or of a plan: a store, which may have failed, or a load, after
        which none of them counts as being loaded. Raises ``AssertionError`` for a load that did not
        begin."""
    def decide_with(self, manager: VllmManager) -> None:
        """Let a manager decide together with the tier, which starts again with the policy
        ``adaptive``.

        Raises ``ValueError`` if the tier has chunks, or after another call. Raises
        :class:`kvoxide.ConfigError` if the groups are not all of the manager's groups that cache
        blocks, or if their chunks have several blocks."""
    def stop_deciding(self) -> None:
        """Let the manager decide alone again, if it still serves."""
    def decides_together(self) -> bool:
        """Return whether a manager that still serves decides together with the tier."""
    def look_up_in_both(
        self,
        keys: Sequence[VllmGroupKeys | list[bytes]],
        request: HostRequest,
        num_computed: int,
        num_tokens: int,
        max_new: int | None = None,
        max_load: int | None = None,
    ) -> tuple[int | None, list[int]]:
        """Do the same as :meth:`look_up` in pool and tier. A load that takes many blocks from the
        pool waits once, until they are stored. Raises ``ValueError`` before
        :meth:`decide_with`."""
    def note_used(self, blocks: VllmBlocks) -> None:
        """Note that a request uses cached blocks, which the pool keeps for now."""
    def store_leaving(
        self, has_tokens: bool, has_ended: bool, stores_taken: bool
    ) -> tuple[OffloadLeavingPlan | None, OffloadLeavingPlan | None, int]:
        """Give blocks room in the tier, and return what is to be stored: the blocks that this step
        takes from the pool, before it runs, and the blocks that later steps can take soon. Each is
        ``None`` if there is nothing. Also return how many of the latter a load asked for.
        ``has_tokens`` is true if the step computes tokens, and ``has_ended`` if a request ended
        since the last call. Without ``stores_taken``, the former are not stored."""
    def is_overwritten(self, plan: OffloadLeavingPlan) -> bool:
        """Return whether the pool has allocated a block again that ``plan`` stores. Raises
        ``ValueError`` before :meth:`decide_with`."""
    def forget_stores(self) -> None:
        """Note that the tier was reset."""

@final
class OffloadLeavingPlan:
    """Stores of blocks that leave the pool, sorted by group. Iterates over the keys."""

    @property
    def chunk_ids(self) -> NDArray[np.int32]: ...
    @property
    def block_ids(self) -> NDArray[np.int32]: ...
    @property
    def group_sizes(self) -> list[int]:
        """How many blocks of each group are stored."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...

@final
class OffloadLoadPlan:
    """A load. ``parts`` are chunks of a group that follow each other: the index of the group, the
    first token, the one after the last, and the keys."""

    @property
    def keys(self) -> VllmChunkKeys | list[bytes]: ...
    @property
    def chunk_ids(self) -> NDArray[np.int32] | None:
        """The chunks of the tier, if it has prepared the load."""
    @property
    def block_ids(self) -> NDArray[np.int32]: ...
    @property
    def group_sizes(self) -> list[int]:
        """How many blocks are filled in each group."""
    @property
    def block_indices(self) -> list[int]:
        """The first block that is filled in each group."""
    @property
    def num_chunks(self) -> list[int]:
        """The chunk in each group with which its next store begins."""
    @property
    def parts(self) -> list[tuple[int, int, int, VllmChunkKeys | list[bytes]]]: ...

@final
class OffloadStorePlan:
    """A store."""

    @property
    def keys(self) -> VllmChunkKeys: ...
    @property
    def chunk_ids(self) -> NDArray[np.int32]: ...
    @property
    def block_ids(self) -> list[list[int]]:
        """The blocks of the keys in each group."""
    @property
    def block_indices(self) -> list[int]:
        """The place of the first of them in each group, else 0."""
