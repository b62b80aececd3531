"""The compiled module: every class and function that Rust provides to Python, except the ones in
:mod:`kvoxide._core_vllm`. Importing this module also creates that one.

Import from :mod:`kvoxide`. This file is the documentation of record for its names. Token counts and
positions are in tokens, block counts and ids in blocks. Block id 0 is the null block.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, Self, TypeAlias, TypedDict, TypeVar, Unpack, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import deprecated

GroupKind: TypeAlias = Literal[
    "full_attention",
    "mla_attention",
    "hidden_states",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "rswa",
    "circular_buffer",
    "mamba",
    "mamba_none",
    "cross_attention",
]
RetentionName: TypeAlias = Literal["standard", "adaptive"]
RecycleOrder: TypeAlias = Literal["uncached-first", "fifo"]
HostMemoryPolicyName: TypeAlias = Literal["lru", "arc", "adaptive"]
HashAlgorithm: TypeAlias = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
TokenArray: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint32]

_Request = TypeVar("_Request")
_Block = TypeVar("_Block")
_Blocks = TypeVar("_Blocks")

__version__: str

class KvoxideError(Exception):
    """Is the base class of all errors that kvoxide raises for an input or a call."""

class ConfigError(KvoxideError, ValueError):
    """Says that a value for a group, policy, manager or replay is not valid."""

class UnsupportedGroupError(ConfigError):
    """Says that kvoxide does not manage this kind of KV cache group."""

class RequestError(KvoxideError, ValueError):
    """Says that a request, or an argument about it, does not fit the manager's state."""

class UnknownRequestError(RequestError, KeyError):
    """Says that the manager has no blocks for a request id: it is unknown, or already freed."""

class DuplicateRequestError(RequestError):
    """Says that another live request has this request id."""

class BlockHashError(KvoxideError, ValueError):
    """Says that block hashes have a wrong length, or are too few for the requested tokens."""

class BlockError(KvoxideError, ValueError):
    """Says that a block id is outside the pool, or that the state of a block forbids the call."""

class BusyError(KvoxideError, RuntimeError):
    """Says that the manager or the tier is in the middle of another call, in another thread or in
    Python code that the other call runs (such as an attribute of a request). Nothing was changed.
    """

class InternalError(KvoxideError, AssertionError):
    """Says that the engine found an error in its own state. Please report it."""

class PoisonedError(InternalError):
    """Says that the manager refuses this and every later call, because its state can no longer be
    trusted. The message has the cause. Please report it."""

class GroupSizes(TypedDict, total=False):
    """Sizes that only some kinds of groups have. They are in tokens unless they count blocks. None
    means that the size is not given."""

    sliding_window: int | None
    """A token attends to itself and the ``sliding_window - 1`` before (the two sliding kinds)."""
    attention_chunk_size: int | None
    """A token attends within chunks of this many tokens (``chunked_local_attention``)."""
    extra_retained_tokens: int | None
    """Tokens before a sliding window that stay allocated (multi-module MTP); 0 if not given."""
    rswa_window: int | None
    """Generated tokens that a token attends to, in addition to the prompt (``rswa``)."""
    num_speculative_blocks: int | None
    """Blocks after the running state that drafts write to (both Mamba kinds); 0 if not given."""
    num_prefill_checkpoint_blocks: int | None
    """Blocks for a state inside a chunk of the prompt (``mamba``); 0 if not given."""
    prefill_checkpoint_alignment: int | None
    """Such states are at multiples of this many tokens after the chunk's start."""

@final
class KVCacheGroupSpec:
    """One KV cache group: layers that share a block table.

    ``kind`` is one of :data:`GroupKind`. ``block_size`` is the tokens per block; for a
    ``circular_buffer`` it is the capacity. ``sizes`` are sizes that the kind needs or may have;
    :func:`group_kinds` lists them. ``is_eagle_group`` marks a draft group, whose hits drop their
    last block. ``prefix_cacheable`` keeps the group in or out of the prefix cache if the kind
    leaves that open (bounded replay of a sliding-window MLA group). None keeps the kind's own
    choice. Two groups are looked up together if everything but ``is_eagle_group`` is equal.
    Different ``layout`` numbers keep them apart.

    Raises :class:`UnsupportedGroupError` for another kind, and :class:`ConfigError` for a size or
    window that cannot work.
    """

    def __new__(
        cls,
        kind: GroupKind,
        block_size: int,
        *,
        is_eagle_group: bool = False,
        prefix_cacheable: bool | None = None,
        dcp_sharded: bool | None = None,
        layout: int = 0,
        **sizes: Unpack[GroupSizes],
    ) -> Self: ...
    @property
    def kind(self) -> GroupKind: ...
    @property
    def block_size(self) -> int: ...
    @property
    def is_eagle_group(self) -> bool: ...
    @property
    def prefix_cacheable(self) -> bool: ...
    @property
    def dcp_sharded(self) -> bool:
        """Whether ranks of decode context parallelism share the tokens of a block."""

    @property
    def layout(self) -> int: ...
    @property
    def sizes(self) -> GroupSizes:
        """The given sizes, without sizes that equal the kind's default."""

    def __getattr__(self, name: str) -> int | None:
        """Return a size of the group by its name; None if the group does not have it."""

    def num_blocks_at_end(self, num_tokens: int) -> int:
        """Return how many blocks of this group a request of ``num_tokens`` tokens, all of them
        prompt, holds at its end."""
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@final
class GroupDeclaration:
    """The properties of a kind of group: see :func:`group_kinds`."""

    @property
    def name(self) -> GroupKind: ...
    @property
    def short_name(self) -> str:
        """The name in ``kvoxide replay --groups``."""

    @property
    def event_name(self) -> str:
        """vLLM's name for this kind in KV cache events."""

    @property
    def vllm_spec(self) -> str:
        """vLLM's class that describes such groups."""

    @property
    def vllm_manager(self) -> str:
        """vLLM's class that manages such groups."""

    @property
    def vllm_attributes(self) -> dict[str, str]:
        """Attributes of vLLM's class that distinguish this kind from others of the same class."""

    @property
    def required_sizes(self) -> tuple[str, ...]:
        """Names of the sizes that a group needs, in the order of ``kvoxide replay --groups``."""

    @property
    def optional_sizes(self) -> tuple[str, ...]:
        """Names of the sizes that a group may have."""

    @property
    def prefix_caching(self) -> Literal["always", "optional", "never"]:
        """Whether blocks take part in prefix caching. With ``optional``, they do unless a group
        opts out."""

    @property
    def hit_needs(self) -> str:
        """The part of a prefix that must be cached for a hit."""

    @property
    def releases(self) -> str:
        """The blocks that are released while a request runs; empty for none."""

    @property
    def is_sparse(self) -> bool:
        """Whether the reachable-block mask and retention intervals reduce the blocks that are
        cached."""

    @property
    def is_pinned_by_drop(self) -> bool:
        """Whether the blocks that a request still holds are pinned when it releases many blocks."""

    @property
    def supports_eagle(self) -> bool: ...
    @property
    def mixes_block_sizes(self) -> bool:
        """Whether such a group works together with groups of other block sizes."""

def group_kinds() -> tuple[GroupDeclaration, ...]:
    """Return every kind of group that kvoxide manages."""

def older_rules() -> tuple[str, ...]:
    """Return the names of the rules of older releases of vLLM that a manager can follow."""

@final
class KVCacheConfig:
    """The pool and its groups. All of ``kv_cache_groups`` share ``num_blocks`` blocks, including
    the null block. ``needs_kv_cache_zeroing`` makes the manager list newly allocated blocks for
    :meth:`KVCacheManager.take_new_block_ids`."""

    def __new__(
        cls,
        num_blocks: int,
        kv_cache_groups: Sequence[KVCacheGroupSpec],
        *,
        needs_kv_cache_zeroing: bool = False,
    ) -> Self: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def kv_cache_groups(self) -> list[KVCacheGroupSpec]: ...
    @property
    def needs_kv_cache_zeroing(self) -> bool: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@final
class Policy:
    """The blocks that are kept, and the order in which they are allocated again. The values combine
    freely. The defaults are what vLLM 0.33.0, 0.32.0 and 0.31.0 do without options.
    docs/reference/policies.md says where the values come from and what they do.

    ``retention``: ``"standard"`` means the values below. ``"adaptive"`` needs no other value and
    takes only ``protected_share``. It gives window tails and states a value, and evicts free blocks
    in the order that fits the traffic. docs/explain/retention.md describes the mechanism.

    ``recycle_order``: ``"uncached-first"`` puts released blocks without a hash at the front of the
    free queue. ``"fifo"`` puts all blocks at the back.

    ``reachable_block_mask``: do not cache sliding-window blocks that can never serve a hit.

    ``retention_interval`` (tokens), for groups with windows or states: ``0``, vLLM's default, keeps
    only the latest prompt boundary that a replay can reach, and shared-prefix boundaries. ``n``
    keeps one tail per ``n`` tokens in addition. ``None`` keeps the tail of every aligned boundary.
    ``"auto"`` is 32,768. Adaptive retention has no interval, and the attribute is then ``None``.

    ``pin_min_drop_size`` (blocks): ``None`` is off. Otherwise, if a window group drops at least
    this many blocks, the cached blocks of the window are pinned. The end of a request pins every
    cached block that it still holds. Pinned blocks are allocated last. The source's default is
    :data:`DEFAULT_PIN_MIN_DROP_SIZE`.

    ``protected_share`` (of the pool, 0.0 to 1.0), with adaptive retention: the most free blocks
    with a priority above 50 (:class:`Retention`). ``None`` is 0.25. Raises :class:`ConfigError` for
    another share, or for a share without adaptive retention.
    """

    def __new__(
        cls,
        *,
        retention: RetentionName = "standard",
        recycle_order: RecycleOrder = "uncached-first",
        reachable_block_mask: bool = True,
        retention_interval: int | Literal["auto"] | None = 0,
        pin_min_drop_size: int | None = None,
        protected_share: float | None = None,
    ) -> Self: ...
    @property
    def retention(self) -> RetentionName: ...
    @property
    def recycle_order(self) -> RecycleOrder: ...
    @property
    def reachable_block_mask(self) -> bool: ...
    @property
    def retention_interval(self) -> int | None:
        """The interval in tokens; ``"auto"`` reads as 32768."""
    @property
    def pin_min_drop_size(self) -> int | None: ...
    @property
    def protected_share(self) -> float:
        """The share, from 0.0 to 1.0. Without adaptive retention it has no meaning."""
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

DEFAULT_PIN_MIN_DROP_SIZE: int

@final
class BlockHasher:
    """Computes the chained block hashes of requests, in Rust, with the GIL released.

    ``block_size`` is the tokens per hash. The bytes equal the bytes of vLLM's algorithms of these
    names: 32 for sha256 and 16 for xxhash. The hashed data is a pickle or, with ``_cbor``, CBOR.
    The chain starts at the hash of ``seed``, whose default is vLLM's for sha256. xxhash is not
    collision resistant: SECURITY.md says what that means for tenants that share a cache. Pickles
    depend on which objects are identical. A request's LoRA name and path are taken for two objects.
    """

    def __new__(
        cls,
        block_size: int,
        algorithm: HashAlgorithm = "sha256_cbor",
        *,
        seed: str = ...,
    ) -> Self: ...
    @property
    def block_size(self) -> int: ...
    @property
    def algorithm(self) -> HashAlgorithm: ...
    def hash_tokens(self, token_ids: TokenArray | Sequence[int]) -> list[bytes]:
        """Return the hash of every full block of ``token_ids``."""

@final
class RequestStatus:
    """The state of a request in the scheduler. Only WAITING and PREEMPTED matter to the manager.
    The watermark applies to them, and a PREEMPTED request releases no blocks for others."""

    WAITING: RequestStatus
    RUNNING: RequestStatus
    PREEMPTED: RequestStatus
    FINISHED: RequestStatus

@final
class Retention:
    """How long a request asks to keep its blocks, under ``Policy(retention="adaptive")``. The
    priorities are the ones of TensorRT-LLM's ``KvCacheRetentionConfig``. docs/explain/retention.md
    explains each.

    ``priority`` (0 to 100): blocks of a lower priority are evicted first. Requests without a
    retention have 50. Blocks of priority 0 are evicted before any other cached block. The number of
    free blocks above 50 is limited by ``Policy``'s ``protected_share``.

    ``ttl`` (seconds, more than 0): how long a block has the priority after its last use by such a
    request. ``None`` means for ever, and so do more than 49 days. After this time, the block counts
    as of priority 50.

    ``start`` and ``end`` (tokens): the range of the request's tokens that it is for, without the
    token ``end``. ``None`` means all tokens from ``start`` on, also generated ones. A block belongs
    to the range that contains its last token.

    Raises :class:`RequestError` for an invalid priority, time or range.
    """

    def __new__(
        cls,
        *,
        priority: int,
        ttl: float | None = None,
        start: int = 0,
        end: int | None = None,
    ) -> Self: ...
    @property
    def priority(self) -> int: ...
    @property
    def ttl(self) -> float | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int | None: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@final
class Request:
    """A request as the manager reads it: its tokens (or only their number), its block hashes, and
    how many tokens are computed. The scheduler owns it and writes the plain attributes.

    Give ``prompt_token_ids`` together with ``block_hasher``, or ready-made ``block_hashes``
    together with ``num_prompt_tokens``. ``prompt_token_ids`` is a 1-d int32, int64 or uint32 array,
    or a sequence of int. ``block_hashes`` is a list of equally long bytes, at most 32 each, or a
    2-d uint8 array with one row per hash block. ``cache_salt`` and ``lora`` (name, path) become
    part of the hashes and of the events.

    Adaptive retention uses the next four. Hints need it; a session alone does not.
    docs/how-to/sessions-and-hints.md explains them.

    - ``session_id``: requests of one session continue each other.
    - ``retention``: a :class:`Retention`, or several for ranges of tokens. If ranges overlap, the
      last one counts.
    - ``release``: ranges of tokens as pairs (start, end), whose blocks are evicted first once the
      request is freed. An end of ``None`` means all tokens from the start on.
    - ``ends_session``: no other request of the session follows. All tokens are released.

    A released block stays if another session has hit it. A request that is freed with the status
    ``PREEMPTED`` releases nothing and does not end its session.

    Raises :class:`RequestError` for a wrong dtype, shape, combination or range, and
    :class:`BlockHashError` for hashes of unequal or unusable length.
    """

    def __new__(
        cls,
        request_id: str,
        prompt_token_ids: TokenArray | Sequence[int] | None = None,
        *,
        block_hasher: BlockHasher | None = None,
        block_hashes: Sequence[bytes] | NDArray[np.uint8] | None = None,
        num_prompt_tokens: int | None = None,
        cache_salt: str | None = None,
        lora: tuple[str, str] | None = None,
        session_id: str | None = None,
        skip_reading_prefix_cache: bool = False,
        kv_cache_report_mode: Literal["incremental", "full"] = "incremental",
        retention: Retention | Sequence[Retention] | None = None,
        release: Sequence[tuple[int, int | None]] | None = None,
        ends_session: bool = False,
    ) -> Self: ...
    @property
    def retention(self) -> Retention | list[Retention] | None:
        """Return ``None``, the only retention, or all of them."""
    @property
    def release(self) -> list[tuple[int, int | None]]: ...
    @property
    def ends_session(self) -> bool: ...
    @property
    def request_id(self) -> str: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far."""
    @property
    def block_hashes(self) -> list[bytes]: ...
    @property
    def all_token_ids(self) -> NDArray[np.int64]:
        """A copy; empty for a request with ready-made hashes."""
    @property
    def skip_reading_prefix_cache(self) -> bool: ...
    @property
    def session_id(self) -> str | None: ...
    num_computed_tokens: int
    """Tokens whose KV the scheduler counts as computed. The caller sets it."""
    num_in_flight_tokens: int
    """Tokens of steps whose output is not processed yet. The caller sets it."""
    shared_prefix_boundary: int
    """Third result of :meth:`KVCacheManager.get_computed_blocks`. The caller sets it."""
    num_preemptions: int
    status: RequestStatus
    def append_output_token_ids(self, token_ids: int | TokenArray | Sequence[int]) -> None:
        """Append generated tokens and hash the blocks they fill."""
    def append_block_hashes(self, block_hashes: Sequence[bytes], num_new_tokens: int) -> None:
        """Add tokens, and the hashes that they fill, to a request with ready-made hashes."""

@final
class KVCacheBlock:
    """A view of one block; equal to every other view of the same block of the same pool."""

    @property
    def block_id(self) -> int: ...
    @property
    def ref_cnt(self) -> int: ...
    @property
    def block_hash(self) -> bytes | None:
        """The block hash, followed by the group id in 4 bytes, big-endian."""
    @property
    def block_hash_num_tokens(self) -> int | None: ...
    @property
    def is_null(self) -> bool: ...
    @property
    def is_pinned(self) -> bool: ...

class _BlockLists:
    """Methods of blocks per group, of either manager."""

    def get_block_ids(
        self, allow_none: bool = False, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...] | None:
        """Return block ids per group. Return None if ``allow_none`` and all selected groups are
        empty."""
    def get_block_ids_numpy(
        self, *, group_ids: Sequence[int] | None = None
    ) -> tuple[NDArray[np.int32], ...]: ...
    def get_unhashed_block_ids(self) -> list[int]: ...
    def get_unhashed_block_ids_all_groups(self) -> list[list[int]]: ...

@final
class KVCacheBlocks(_BlockLists):
    """Blocks per group, the result of a look-up or an allocation. It holds ids in Rust. Only the
    methods that return Python objects create them."""

    @property
    def blocks(self) -> tuple[list[KVCacheBlock], ...]: ...
    def new_empty(self) -> KVCacheBlocks: ...
    def __add__(self, other: KVCacheBlocks, /) -> KVCacheBlocks: ...
    def __len__(self) -> int:
        """Return the number of groups."""

@final
class BlockStored:
    """Blocks entered the prefix cache (or, in report mode ``full``, were reused from it)."""

    block_hashes: list[bytes]
    parent_block_hash: bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None
    group_idx: int | None
    kv_cache_spec_kind: str | None
    kv_cache_spec_sliding_window: int | None
    session_id: str | None
    lookahead_token_ids: list[list[int]] | None

@final
class BlockRemoved:
    """A block left the prefix cache."""

    block_hashes: list[bytes]
    medium: str | None
    group_idx: int | None

@final
class AllBlocksCleared:
    """The prefix cache was reset."""

KVCacheEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared

@final
class PrefixCacheStats:
    """Look-ups since the last :meth:`KVCacheManager.make_prefix_cache_stats`, counted as in vLLM.
    Repeated look-ups of a preempted request are counted separately."""

    reset: bool
    requests: int
    queries: int
    hits: int
    preempted_requests: int
    preempted_queries: int
    preempted_hits: int

@final
class RetentionReport:
    """The decisions of adaptive retention since the manager was constructed, and the present state
    of its blocks. docs/explain/retention.md explains how to read it."""

    @property
    def scoring_function(self) -> Literal["recency", "frequency", "hazard"]:
        """The scoring function in force."""
    @property
    @deprecated("use scoring_function")
    def ordering(self) -> Literal["recency", "frequency", "hazard"]: ...
    @property
    def in_use_blocks(self) -> int:
        """Blocks in use. This and the next four add up to all blocks but the null block."""
    @property
    def full_blocks(self) -> int:
        """Free cached blocks of groups that need all of a prefix for a hit."""
    @property
    def tail_blocks(self) -> int:
        """Free cached blocks of windows, chunks and states."""
    @property
    @deprecated("use protected_blocks")
    def held_blocks(self) -> int: ...
    @property
    def protected_blocks(self) -> int:
        """Protected tails: blocks of windows, chunks and states that are kept for a running
        request. They are not counted above."""
    @property
    def empty_blocks(self) -> int:
        """Free blocks without a hash."""
    @property
    def evicted_full_blocks(self) -> int: ...
    @property
    def evicted_tail_blocks(self) -> int: ...
    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of requests when they got their first slots. A request with generated
        tokens is not counted again."""
    @property
    def hit_tokens(self) -> int:
        """How many of the prompt tokens were hit."""
    @property
    def hit_prompt_tokens(self) -> int:
        """Hit tokens in blocks that were computed as part of a prompt."""
    @property
    def hit_answer_tokens(self) -> int:
        """Hit tokens in blocks with generated tokens; 0 if no group needs all of a prefix for a
        hit."""
    @property
    def sampled_blocks(self) -> int:
        """Blocks of the sample that requests used: they hit or computed them."""
    @property
    def sampled_hits(self) -> int:
        """How many of the sampled blocks were hit."""
    @property
    def sampled_kept(self) -> dict[str, int]:
        """How many of the sampled blocks each scoring function alone would have kept, in a pool
        with as many free blocks. ``"recency"`` is the order of the default. A hit needs tails too,
        so the number can be larger than the hits."""
    @property
    def default_hit_tokens(self) -> int:
        """An estimate of the prompt tokens that the default policy would have hit. If CPU memory
        decides with ``adaptive`` too, hits in both memories, with LRU in CPU memory.
        docs/explain/retention.md states its error."""
    @property
    def is_default_hit_a_limit(self) -> bool:
        """Whether the default policy may have hit far less, because states were missing."""

class _BlockPool(Generic[_Block]):
    """Methods of the block pool, of either manager."""

    def get_num_free_blocks(self) -> int:
        """Return how many blocks are free, including pinned blocks."""
    def get_num_pinned_blocks(self) -> int: ...
    def get_new_blocks(self, num_blocks: int) -> list[_Block]: ...
    def touch(self, blocks: Iterable[_Block]) -> None: ...
    def free_blocks(self, ordered_blocks: Iterable[_Block]) -> None: ...
    def reset_prefix_cache(self) -> bool: ...

@final
class BlockPool(_BlockPool[KVCacheBlock]):
    """The block pool of a manager."""

    @property
    def num_gpu_blocks(self) -> int: ...
    @property
    def null_block(self) -> KVCacheBlock: ...
    @property
    def blocks(self) -> Sequence[KVCacheBlock]:
        """Every block. The views are created on access."""
    def get_num_cached_blocks(self) -> int:
        """Return how many blocks have at least one hash in the prefix cache."""
    def get_usage(self) -> float: ...
    def get_free_block_ids(self) -> NDArray[np.int32]:
        """Return the free queue, front first."""
    def get_pinned_block_ids(self) -> NDArray[np.int32]:
        """Return the pinned tier, oldest first."""
    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[KVCacheBlock] | None: ...
    def evict_blocks(self, block_ids: Iterable[int]) -> None: ...
    def take_events(self) -> list[KVCacheEvent]: ...

@final
class OutcomeReport:
    """Prompt tokens by the reason why they were hit or not, since
    :meth:`KVCacheManager.observe_outcomes`.

    A request counts once, when it is first admitted. All numbers only grow.
    """

    @property
    def outcomes(self) -> dict[str, int]:
        """Prompt tokens by outcome. They sum to the tokens of all admitted prompts. All names are
        always present:

        - ``hit_gpu``: hit in a block without generated tokens.
        - ``hit_host``: brought by a connector.
        - ``hit_answer``: hit in a block with generated tokens of an earlier request.
        - ``first_time``: not computed before, as far as the manager remembers.
        - ``below_block``: computed before, but no hit of this prompt can end after them.
        - ``evicted_full``: the full attention was cached and evicted.
        - ``evicted_tail``: the full attention is cached, but the window or state of a hit was
          evicted.
        - ``never_cached``: computed before, but no window or state of a later hit was ever cached.
        - ``other_salt_or_adapter``: computed under another salt or adapter. Only requests with
          ``prompt_token_ids`` can be compared.
        - ``not_cacheable``: had to be computed. Caching is off, the request skips reading it, it is
          the last token, or the caller took a shorter hit.
        """
    @property
    def evictions(self) -> dict[str, int]:
        """Cached blocks that were evicted: ``full`` for groups that need the whole prefix, ``tail``
        for windows, chunks and states."""
    @property
    def reuse_gap_bounds(self) -> list[float]:
        """Upper bounds of the intervals of :attr:`reuse_gap_counts`, seconds: 1, 2, 4 and so on."""
    @property
    def reuse_gap_counts(self) -> list[int]:
        """How many evicted keys were asked for again after each time, one interval more than
        bounds. Each eviction counts once, at the first admission that asks for its key."""
    @property
    def reuse_gap_sum(self) -> float:
        """Sum of these times, seconds."""
    def __eq__(self, other: object, /) -> bool: ...

class _Manager(Generic[_Request, _Block, _Blocks]):
    """Methods that the manager shares with the engine of :mod:`kvoxide.vllm`."""

    @property
    def watermark_blocks(self) -> int: ...
    @property
    def enable_partial_hash_hits(self) -> bool:
        """Whether hits can end inside a block, at any multiple of ``hash_block_size``."""
    @property
    def mamba_shared_prefix_checkpoint(self) -> bool:
        """Whether states are kept at shared-prefix boundaries inside a block."""
    @property
    def usage(self) -> float:
        """Share of the pool in use, 0.0 to 1.0."""
    def get_computed_blocks(
        self, request: _Request, max_cache_hit_length: int | None = None
    ) -> tuple[_Blocks, int, int]:
        """Return the longest prefix hit: its blocks, its length in tokens, and the shared-prefix
        boundary. Write the boundary (in tokens; 0 for none) to ``request.shared_prefix_boundary``.

        ``max_cache_hit_length`` defaults to ``request.num_tokens - 1``.
        """
    def allocate_slots(
        self,
        request: _Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: _Blocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: Sequence[int] = ...,
    ) -> _Blocks | None:
        """Allocate slots for ``num_new_tokens`` more tokens. Return the newly allocated blocks, or
        None if they do not fit."""
    def remove_skipped_blocks(
        self,
        request_id: str,
        processed_computed_tokens: int,
        num_prompt_tokens: int | None = None,
    ) -> None: ...
    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]: ...
    def get_block_ids_for_computed_tokens(
        self, request_id: str, num_computed_tokens: int
    ) -> tuple[list[int], ...]: ...
    def cache_blocks(self, request: _Request, num_computed_tokens: int) -> None: ...
    def truncate_computed_blocks(self, blocks: _Blocks, num_computed_tokens: int) -> _Blocks: ...
    def take_new_block_ids(self) -> list[int]: ...
    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None: ...
    def take_kv_cache_block_copies(self) -> tuple[list[KVCacheBlockCopy], list[_Block]]:
        """Return the blocks to copy before the next step, and the blocks of all pairs. Each of
        these blocks has a reference for its copy. Release it when the copy is done."""
    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        """Return, for each request, the states that a connector may read until the request ends.
        Each entry has the group, the block, and the tokens that the state covers."""
    def retention_report(self) -> RetentionReport | None:
        """Return the decisions of adaptive retention, or None with another policy. The call takes a
        few nanoseconds per block of the pool."""
    def observe_outcomes(self, *, per_request: bool = False) -> None:
        """Start to count the tokens of each prompt by outcome. Call it before the first request;
        later, the call raises :class:`RequestError`. ``per_request`` also keeps the outcomes of
        each request for :meth:`take_outcomes`. The manager then uses 7.2 bytes more per block."""
    def outcome_report(self) -> OutcomeReport | None:
        """Return the outcomes since :meth:`observe_outcomes`, or None without that call."""
    def take_outcomes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the requests that were admitted since the last call: the id of each, and the
        tokens of its prompt by outcome, in the order of :attr:`OutcomeReport.outcomes`. At most
        4,096 requests are kept; the oldest ones are dropped. Raise :class:`RequestError` without
        ``observe_outcomes(per_request=True)``."""
    def new_step_starts(self) -> None:
        """Mark the start of a scheduling step. States that were cached in the step before exist
        from now on."""
    def check_invariants(self) -> None:
        """Check every invariant of the engine. :class:`InternalError` names the broken one."""
    def state_digest(self) -> bytes:
        """Return 32 bytes that identify the whole state: queues, reference counts, hashes and
        tables. They are equal before and after a call that changed nothing."""

@final
class KVCacheManager(_Manager[Request, KVCacheBlock, KVCacheBlocks]):
    """The KV cache manager of a scheduler: the methods, arguments, results and decisions of
    the newest supported vLLM, with its state in Rust.

    ``scheduler_block_size`` defaults to the least common multiple of the groups' block sizes,
    ``hash_block_size`` (tokens per block hash) to their greatest common divisor.
    ``max_in_flight_tokens`` (tokens scheduled but not settled) defaults to ``max_model_len``.
    ``watermark`` is the share of the pool that stays free when a waiting request is admitted while
    others run. ``clock`` returns seconds and never goes back. It is called only if a request has a
    :class:`Retention` with a ``ttl``, or if outcomes are observed. The default is the machine's
    monotonic clock.

    If a method gets bad input, it raises and leaves the manager unchanged.
    """

    def __new__(
        cls,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        scheduler_block_size: int | None = None,
        hash_block_size: int | None = None,
        max_in_flight_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        num_hash_lookahead_tokens: int = 0,
        num_prefill_lookahead: int = 0,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        dcp_world_size: int = 1,
        *,
        watermark: float = 0.0,
        enable_mamba_shared_prefix_checkpoint: bool = False,
        policy: Policy | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Self: ...
    @property
    def kv_cache_config(self) -> KVCacheConfig: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def scheduler_block_size(self) -> int: ...
    @property
    def hash_block_size(self) -> int: ...
    @property
    def enable_caching(self) -> bool: ...
    @property
    def num_kv_cache_groups(self) -> int: ...
    @property
    def block_pool(self) -> BlockPool: ...
    @property
    def empty_kv_cache_blocks(self) -> KVCacheBlocks: ...
    def make_prefix_cache_stats(self) -> PrefixCacheStats | None: ...
    def prefix_cache_lookup_enabled(self, request: Request) -> bool: ...
    def record_prefix_cache_stats(self, request: Request, num_hits: int) -> None: ...
    def get_computed_blocks_for_connector(
        self, request: Request, max_cache_hit_length: int | None = None
    ) -> tuple[KVCacheBlocks, int, int, bool]: ...
    def free(self, request: Request) -> None: ...
    def pop_blocks_for_free(self, request: Request) -> list[KVCacheBlock]: ...
    def evict_blocks(self, block_ids: Iterable[int]) -> None: ...
    def reset_prefix_cache(self) -> bool: ...
    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]: ...
    def take_events(self) -> list[KVCacheEvent]: ...
    def get_blocks(self, request_id: str) -> KVCacheBlocks: ...
    def get_num_blocks_to_allocate(
        self,
        request: Request,
        num_tokens: int,
        *,
        new_computed_blocks: KVCacheBlocks | None = None,
        total_computed_tokens: int = 0,
        num_local_computed_tokens: int = 0,
        apply_admission_cap: bool = False,
        num_encoder_tokens: int = 0,
        num_tokens_main_model: int | None = None,
        prefill_end: int = 0,
    ) -> int:
        """Return how many free blocks are needed to give the request slots for ``num_tokens``.
        ``num_tokens_main_model`` of the tokens, all if not given, are the target model's."""
    def estimate_cached_tokens(self, request: Request) -> int: ...
    def create_kv_cache_blocks(self, blocks: Sequence[Sequence[KVCacheBlock]]) -> KVCacheBlocks: ...
    def finalize_partial_tail_offloads(self, request: Request) -> list[tuple[int, int, int]]:
        """Return the same for a request that ends now: the states after its last computed token."""

@final
class HostTier:
    """Chunks of KV in host memory, a second tier after the pool. Under ``lru`` and ``arc``, the
    decisions equal vLLM's ``CPUOffloadingManager``: which keys are stored in which chunk, and which
    keys are evicted for them. ``adaptive`` is kvoxide's own policy.

    A chunk holds the blocks of one key: a block hash, and its group in 4 bytes, big-endian. In one
    tier, either all hashes have 32 bytes or all have 1 to 31. ``store_threshold`` is how often a
    key is offered before it is stored. From 2 on, the offers of the last ``max_tracker_size`` keys
    are counted. ``log_stats`` keeps the sizes of stores for :meth:`take_store_sizes`.
    ``vllm_release`` is the release whose decisions the tier makes.

    ``positions`` are the tokens up to the end of each key. Under ``lru``, a request's keys are
    evicted from the end of the prompt on. A key without a position is ordered by when it was
    stored. Iterables of keys are read before anything changes.

    Raises :class:`ConfigError` for a size below 0, more than 2,147,483,648 chunks or an unknown
    name, and :class:`BlockError` for a key without a group. Raises :class:`BlockHashError` for a
    hash of 32 bytes together with shorter ones, and for a longer hash. Raises :class:`RequestError`
    for an invalid position.

    Under ``adaptive``, the tier decides together with a :class:`KVCacheManager`, from
    :meth:`decide_with` on. A chunk holds one block. Blocks are stored before the manager evicts
    them, so no request offers keys. These calls replace the calls that store, load or use keys,
    which raise :class:`RequestError`, as these do under another policy:

    1. :meth:`lookup_request` after :meth:`KVCacheManager.get_computed_blocks`.
    2. :meth:`KVCacheManager.allocate_slots` with its results. If there are tokens to load, also
       pass ``delay_cache_blocks=True``, and call :meth:`start_load`.
    3. :meth:`prepare_step` before each step, after all allocations. It returns what to copy.
    4. :meth:`complete` after each copy. After a load, also
       :meth:`KVCacheManager.cache_blocks` with the tokens of the hit.

    The tier sees ends and preemptions in the manager's :meth:`~KVCacheManager.free`. It has no
    other call for a request. ``store_threshold`` must be 1. docs/how-to/build-a-second-tier.md has
    an example.
    """

    def __new__(
        cls,
        num_chunks: int,
        policy: HostMemoryPolicyName = "lru",
        *,
        store_threshold: int = 1,
        max_tracker_size: int = 64_000,
        enable_kv_cache_events: bool = False,
        log_stats: bool = False,
        vllm_release: Literal["0.33.0", "0.32.0"] = "0.33.0",
    ) -> Self: ...
    @property
    def policy(self) -> HostMemoryPolicyName: ...
    @property
    def num_chunks(self) -> int: ...
    @property
    def num_free_chunks(self) -> int:
        """Chunks without a key."""
    @property
    def num_allocated_chunks(self) -> int:
        """Ids of chunks that were used since the last reset, including chunks that are free
        again."""
    @property
    def num_evictable_chunks(self) -> int:
        """Chunks that can be loaded and are not being loaded now."""
    @property
    def num_pending_chunks(self) -> int:
        """Chunks that are being stored."""
    @property
    def num_transferred_chunks(self) -> tuple[int, int, int]:
        """Chunks that were stored, that were loaded, and that were evicted without a load, since
        the tier was created. A reset evicts none."""
    def lookup(self, key: bytes) -> Literal["miss", "hit", "hit_pending"]:
        """Return whether ``key`` can be loaded. ``hit_pending`` means that it is being stored."""
    def lookup_prefix(self, keys: Iterable[bytes]) -> int | None:
        """Return how many of ``keys`` have a chunk, counted from the first key to the first without
        a chunk. Return ``None`` if one of these chunks is pending."""
    def lookup_window(self, keys: Iterable[bytes], window: int, first_window: int) -> int | None:
        """Return the end of the last run of ``window`` keys that have a chunk. For the run at the
        end of ``keys``, ``first_window`` keys are enough. Without such a run, return the end of the
        run at the start, 0 if there is none. Return ``None`` if a chunk of the run is pending."""
    def set_loading(self, keys: Iterable[bytes], is_loading: bool) -> None:
        """Note that ``keys`` are being loaded, or no longer are, so that other requests can wait.
        Ignore keys without a chunk. A note ends when the chunk is freed."""
    def is_any_loading(self, keys: Iterable[bytes]) -> bool:
        """Return whether one of ``keys`` is noted as being loaded."""
    @property
    def num_loading_keys(self) -> int:
        """Keys that are noted as being loaded."""
    def start_request(self, request: HostRequest) -> None:
        """Make ``request`` a request of this tier. The first call with keys does this too."""
    def prepare_load(
        self,
        request: HostRequest,
        keys: Iterable[bytes],
        positions: dict[bytes, int] | None = None,
    ) -> NDArray[np.int32]:
        """Return the chunks of ``keys``. They stay until :meth:`complete_load`.

        Raises :class:`RequestError` for a key that cannot be loaded, or for a key that an ended
        ``request`` did not see before.
        """
    def complete_load(self, keys: Iterable[bytes]) -> None:
        """End a load. Raises :class:`RequestError` for a key that is not being loaded."""
    def prepare_read(self, keys: Iterable[bytes]) -> NDArray[np.int32]:
        """Return the chunks of ``keys`` for a copy to another tier, which is no request's use of
        them. They stay until :meth:`complete_read`.

        Raises :class:`RequestError` for a key that cannot be loaded.
        """
    def complete_read(self, keys: Iterable[bytes]) -> None:
        """End a read. :attr:`num_transferred_chunks` does not count it. Raises
        :class:`RequestError` for a key that is not being loaded or read."""
    def prepare_store(
        self,
        request: HostRequest,
        keys: Iterable[bytes],
        positions: dict[bytes, int] | None = None,
    ) -> HostStorePlan | None:
        """Return which of ``keys`` are to be stored where; ``None`` if there is no room. No offered
        key is evicted.

        Raises :class:`RequestError` for a key that is offered twice, or for a key that an ended
        ``request`` did not see before.
        """
    def complete_store(self, keys: Iterable[bytes], success: bool = True) -> None:
        """End a store. ``keys`` can be loaded from now on; if ``success`` is false, they are
        removed. Ignore keys that are not being stored."""
    def touch(self, keys: Iterable[bytes]) -> None:
        """Use ``keys``, the last one first."""
    def finish_request(
        self, request: HostRequest, positions: dict[bytes, int] | None = None
    ) -> None:
        """Count every key that ``request`` saw as used once, now. Ignore ``positions`` of other
        keys."""
    def reset(self) -> None:
        """Free all chunks, also chunks in transfers. Counts of offers stay. Under ``adaptive``,
        open transfers end, and :meth:`complete` refuses them: free the requests of open loads."""
    def decide_with(self, manager: KVCacheManager) -> None:
        """Decide together with ``manager`` from now on. It must be new, and it simulates a pool of
        both sizes, which takes memory and time in its calls.

        Raises :class:`ConfigError` for a manager without prefix caching. Raises
        :class:`RequestError` for a manager that has served requests, and if the manager or this
        tier decides with another one.
        """
    def decide_alone(self) -> None:
        """Reset, and let the manager decide alone again. The end of the tier's life does this
        too."""
    def lookup_request(
        self, request: Request, new_computed_blocks: KVCacheBlocks, num_new_computed_tokens: int
    ) -> tuple[KVCacheBlocks, int, int] | None:
        """Return what ``request`` hits in both memories, for :meth:`KVCacheManager.allocate_slots`:
        ``new_computed_blocks``, ``num_new_computed_tokens`` and ``num_external_computed_tokens``.
        The last one is how many tokens a load brings; 0 for none. The arguments are the first two
        results of :meth:`KVCacheManager.get_computed_blocks`.

        ``None`` means that the request has to wait: look it up again in a later step. Another
        request loads the same chunks, a chunk is being stored, or the blocks that the load takes
        are stored first.

        Raises :class:`BlockError` for blocks of another manager, and :class:`RequestError` for a
        number of tokens that the blocks do not cover.
        """
    def start_load(self, request: Request) -> None:
        """Start the load that :meth:`lookup_request` found, once ``request`` has slots for it. The
        next :meth:`prepare_step` returns its copies. If the request is freed before that step, the
        load is dropped. From that step on, it can be freed once the load is complete.

        Raises :class:`RequestError` without such a look-up or without such slots. Also raises it if
        chunks were evicted after the look-up: free the request, and look it up again.
        """
    def prepare_step(self) -> HostStep:
        """Return what the next step copies. Call it once per step, after all allocations for the
        step and before it runs, also if no request runs."""
    def complete(self, transfer: HostTransfer, success: bool = True) -> None:
        """End a transfer. Call it for each transfer that has chunks: requests for the same keys
        wait until then. Stored chunks can be loaded from now on. If ``success`` is false, the keys
        are removed from the tier; after a failed load, free its request.

        Raises :class:`RequestError` for a transfer that has ended, also by a :meth:`reset`, and for
        a transfer of another tier. A transfer without chunks can end any number of times.
        """
    def take_events(self) -> list[HostEvent]: ...
    def take_num_skipped(self) -> int:
        """Return how many keys were offered and not stored since the last call, because they were
        offered too seldom."""
    def take_store_sizes(self) -> list[int]:
        """Return the chunks that each store since the last call asked for, including stores that
        found no room."""
    def get_chunks(self) -> dict[bytes, tuple[int, int | None]]:
        """Return the chunk of each key with its number of loads, ``None`` while it is pending. The
        order has no meaning."""
    def get_lru_order(self) -> list[bytes] | None:
        """Return the evictable keys in the order of eviction; ``None`` unless the policy is
        ``lru``."""
    def get_arc_lists(
        self,
    ) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes], float] | None:
        """Return T1, T2, B1 and B2, the oldest key first, and the target of T1; ``None`` unless
        the policy is ``arc``."""
    def get_tracked_offers(self) -> dict[bytes, int]:
        """Return how often each tracked key was offered. The key that was offered longest ago comes
        first."""

@final
class HostRequest:
    """The keys of a :class:`HostTier` that a request saw. In another tier and after a reset, it
    starts anew."""

    def __new__(cls) -> Self: ...

@final
class HostStorePlan:
    """The result of :meth:`HostTier.prepare_store`."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys to store."""
    @property
    def chunk_ids(self) -> NDArray[np.int32]:
        """The chunk of each of :attr:`keys`."""
    @property
    def evicted_keys(self) -> list[bytes]: ...

@final
class HostTransfer:
    """Blocks to copy from the pool to CPU memory, or back. Its length is their number. Two
    objects are equal if they are the same transfer.

    The arrays have one element per block and a new copy on each access.
    """

    @property
    def block_ids(self) -> NDArray[np.int32]:
        """The blocks of the pool: read by a store, written by a load."""
    @property
    def chunk_ids(self) -> NDArray[np.int32]:
        """The chunk of each block."""
    @property
    def group_ids(self) -> NDArray[np.int32]:
        """The group of each block."""
    @property
    def keys(self) -> list[bytes]:
        """The key of each chunk."""
    @property
    def request_id(self) -> str | None:
        """The request that waits for a load; ``None`` for a store."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class HostStep:
    """The copies of a step, in the order in which they have to be done.

    1. End the stores :attr:`waits_for`.
    2. Copy :attr:`before`.
    3. Start the copies of :attr:`loads`. They may end in a later step. Their requests wait.
    4. Run the step, and copy :attr:`during` at the same time. It may end in a later step.
    """

    @property
    def waits_for(self) -> list[HostTransfer]:
        """Stores of earlier steps that have not ended, and whose blocks this step overwrites."""
    @property
    def before(self) -> HostTransfer:
        """A store of blocks that this step overwrites. It can be empty."""
    @property
    def loads(self) -> list[HostTransfer]:
        """The loads that were started since the step before."""
    @property
    def during(self) -> HostTransfer:
        """A store of blocks that later steps can overwrite. It can be empty."""

@final
class HostEvent:
    """Keys of a :class:`HostTier` were stored or evicted, or their store failed."""

    @property
    def kind(self) -> Literal["stored", "removed", "failed"]: ...
    @property
    def keys(self) -> list[bytes]: ...

@final
class KVCacheBlockCopy:
    """A block to copy, and the block that it is copied to."""

    @property
    def src_block_id(self) -> int: ...
    @property
    def dst_block_id(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class PickleError(KvoxideError, ValueError):
    """The bytes of a pickled trace or result are damaged, or were written by another kvoxide."""

class TraceError(KvoxideError, ValueError):
    """A damaged line of a trace. ``field`` is the JSON field at fault ("" for the line)."""

    field: str

@final
class Trace:
    """Requests of a trace in arrival order, held in Rust.

    ``tokens_per_id`` is how many tokens each of the ``hash_ids`` means; ``None`` infers it from the
    lengths. ``format`` is one of :meth:`formats`; ``None`` infers it from the lines. ``time_unit``
    (s, ms, us or ns) is the unit of times that are numbers; ``None`` infers it in :meth:`finish`.

    ``columns`` names the columns or fields of a table or of JSON lines by their meaning: ``input``
    and ``output`` (tokens), and optionally ``time``, ``session``, ``prefix``, ``ids`` and
    ``block_size``. ``prefix`` is how many tokens at the start of a prompt its session had before.
    Raises :class:`ConfigError`.

    Traces can be pickled for processes of the same kvoxide. :class:`PickleError` says that the
    bytes are damaged.
    """

    def __new__(
        cls,
        tokens_per_id: int | None = None,
        *,
        format: str | None = None,
        time_unit: str | None = None,
        columns: dict[str, str] | None = None,
    ) -> Self: ...
    @staticmethod
    def formats() -> list[str]: ...
    @staticmethod
    def describe_formats() -> list[tuple[str, str, str, str, bool]]:
        """Return for each format its name, a description, how a file of it is recognised, an
        example, and whether it can be replayed. Other formats are recognised and refused with a
        reason."""
    def read_columns(self, names: list[str]) -> list[str]:
        """Return the columns of a table that are read. Raises :class:`TraceError` for a table of an
        unknown format; its message suggests ``--columns``."""
    @property
    def format(self) -> str | None:
        """The format of the lines, once it is known."""
    @property
    def notes(self) -> list[str]:
        """Notes on lines that are replayed differently from what a user may expect."""
    def find_format(self, lines: list[bytes]) -> bool:
        """Infer the format from the first lines, unless it is known. Return whether each line is
        read on its own; otherwise the file is one JSON value."""
    def push_line(self, line: bytes) -> None:
        """Add one line of the trace's format. Raises :class:`TraceError`, also if the number of ids
        does not fit the lines before. The trace is then unchanged."""
    def finish(self, *, leave_out: bool = False) -> int:
        """End the reading of lines, and return how many requests were left out.

        Infers the unit of times that are numbers, unless it was given or is sure. Until then they
        are in the format's default unit. Puts the requests in order of time. Raises
        :class:`TraceError` if a request waits for a ``request_id`` of no line, or for itself
        through others, or if a table ends within quotes. With ``leave_out``, such requests and the
        requests that wait for them are left out instead.
        """
    def push_prompt(
        self,
        prompt_token_ids: TokenArray | Sequence[int],
        output_length: int,
        *,
        arrival: float | None = None,
        retention: Retention | None = None,
    ) -> None:
        """Add a request with a prompt of tokens. ``arrival`` is in seconds, on any clock."""

    def __len__(self) -> int: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_output_tokens(self) -> int: ...
    @property
    def tokens_per_id(self) -> int:
        """How many tokens an id means. It is 512, as in Mooncake's traces, if the lengths allow it.
        Otherwise it is the only number that they allow, or the only power of two. Raises
        :class:`TraceError` if the lengths do not determine it."""
    @property
    def may_be_mooncakes(self) -> bool:
        """Whether 512 tokens per id fit every request."""
    def start_part(self, delay: float = 0.0, instance: int | None = None) -> None:
        """Begin a part of the trace. Its lines and prompts came ``delay`` seconds later than they
        say. Its ``hash_ids`` differ from equal ids before, as if from another server. ``instance``
        (0 to 1,023) served it. Raises :class:`ConfigError` for values outside these ranges."""
    def start_schedule(self) -> None:
        """Begin the steps of the server that recorded the current part. The server starts with an
        empty cache."""
    def push_schedule(self, line: bytes) -> None:
        """Add a line of the current part's steps, or a reset of its prefix cache. Raises
        :class:`TraceError` for another line, and in a part without :meth:`start_schedule`."""
    def push_durations(self, steps: Sequence[tuple[float, int]]) -> None:
        """Add how long the next steps of the current part took, in seconds, and how many requests
        each had. Raises :class:`ConfigError` for a time below 0."""
    @property
    def has_schedule(self) -> bool:
        """Whether every request has its steps, and the servers of each instance ran one after the
        other. See ``follows_schedule`` of :class:`Simulation`."""
    @property
    def is_closed_loop(self) -> bool:
        """Whether requests wait for the answers of earlier ones, and all others have an arrival.
        They wait only with ``Serving(closed_loop=True)``, or if their own arrival is not known."""
    def close_loop(self) -> int:
        """Let the turns of sessions wait for the answers that they continue, in sessions whose
        lines have times and no waits. Return the number of requests that now wait for an answer.

        A turn continues the longest earlier prompt of its session with which its own prompt begins.
        If ids do not say which one that is, it continues the latest request. A turn arrives after
        that answer, and at least as long after that request's arrival as in the trace."""
    @property
    def num_resets(self) -> int:
        """Recorded resets of the prefix cache."""
    @property
    def num_skipping_requests(self) -> int:
        """Requests that do not read the prefix cache."""
    @property
    def recorded_requests(self) -> NDArray[np.int64]:
        """Shape (requests, 3): which of the recorded schedulers served each request, its number
        there, and its arrival in microseconds; -1 for values that the trace lacks."""
    @property
    def recorded_outcomes(self) -> NDArray[np.int64]:
        """Shape (requests, 10): prompt tokens by outcome as the server recorded them, in the order
        of ``kvoxide.outcomes.OUTCOMES``; -1 for a request without them."""
    def sort_by_arrival(self) -> None:
        """Put the requests in the order of their arrival. Equal ones, and requests without an
        arrival, keep their order."""
    def truncate(self, num_requests: int) -> None: ...
    @property
    def has_answers(self) -> bool:
        """Whether a line has ``output_hash_ids``, or :meth:`return_answers` found an output."""
    @property
    def num_follow_ups(self) -> int | None:
        """Requests that continue the conversation of an earlier one. None if no line names a
        conversation (``session_id``, or ``chat_id`` and ``parent_chat_id``)."""
    @property
    def counts_from_zero(self) -> bool:
        """Whether the ids of every prompt are 0, 1, 2 and so on, although the prompts differ and
        are not of one session. Then they may count the blocks of each prompt."""
    @property
    def num_restarts(self) -> tuple[int, int]:
        """How many prompts do not begin with the first whole id of the previous prompt in their
        session, and how many have a previous prompt."""
    def return_answers(self) -> int:
        """Infer each output, except its last token, from a later prompt, and return how many were
        found.

        kvoxide uses the first later prompt of the conversation that begins with all whole
        ``hash_ids`` of the request's prompt and is long enough for the output. For several requests
        whose prompts it begins with, the longest one counts. If :attr:`has_answers`, the result is
        0 and nothing changes. Raises :class:`TraceError` if no line names a conversation.
        Afterwards no request can be added.
        """
    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]: ...
    @classmethod
    def _from_bytes(cls, bytes: bytes) -> Self: ...

@final
class Simulation:
    """One run of a trace through a manager, scheduled as vLLM would.

    At most ``concurrency`` requests run. A step schedules at most ``max_batched_tokens`` tokens:
    one per decoding request, and chunks of prompts for the rest, in arrival order. When blocks run
    out, the newest running request is preempted. ``num_blocks=None`` is a pool that never evicts.

    ``baseline`` is a published simple policy that orders evictions: ``session-lru``, ``t-lru``,
    ``s3-fifo`` or ``arc``. ``policy`` then says only which tails are cached. It cannot be adaptive.

    Requests whose index (0-based) is below ``report_from`` warm the cache. They do not count in the
    counts of requests and tokens. They do count in evictions, preemptions, steps and times, and
    they are in ``per_request``.

    ``bound`` asks for the results' ``bound_...`` too. With ``serving``, time passes: requests
    arrive and wait, and there may be several instances, each with its own ``num_blocks`` and
    ``concurrency``. With ``follows_schedule``, requests run in the steps that the trace's servers
    recorded, each in its instance. ``rules`` are the settings that a recorded server's scheduler
    gave its manager, by the names of the recording's header. ``release`` are the rules in which
    releases of vLLM differ, for a release that is chosen: ``drops_flagged_groups``,
    ``recaches_known_tail``, ``keep_tail_below_boundary`` and ``older_rules``. Without it, the
    recorded server's release is played, or the newest. Without ``enable_caching``, nothing is hit.

    ``host_memory`` is the CPU memory of each instance. vLLM's offloading connector decides what it
    stores, loads and evicts. Without ``serving``, loads take no time. It has no ``bound``.
    """

    def __new__(
        cls,
        trace: Trace,
        kv_cache_groups: Sequence[KVCacheGroupSpec],
        num_blocks: int | None,
        *,
        policy: Policy | None = None,
        baseline: str | None = None,
        concurrency: int = 256,
        max_batched_tokens: int = 8192,
        report_from: int = 0,
        bound: bool = False,
        serving: Serving | None = None,
        follows_schedule: bool = False,
        rules: Mapping[str, Any] | None = None,
        release: Mapping[str, Any] | None = None,
        enable_caching: bool = True,
        host_memory: HostMemory | None = None,
    ) -> Self: ...
    def run(self) -> SimulationResult:
        """Run to the end with the GIL released.

        Raises :class:`ConfigError` for a pool too small for the null block and one block, and for a
        bound of several instances, with CPU memory or without prefix caching. If the trace's times
        are played, also raises it for a request without a time of arrival, and for a request that
        waits for one that never comes. Raises KeyboardInterrupt if :meth:`cancel` was called.
        """
    def cancel(self) -> None:
        """Stop a run in another thread at its next step."""
    def progress(self) -> int:
        """Return how many requests have finished so far. Another thread may call this during
        :meth:`run`."""

@final
class HostMemory:
    """The CPU memory of each instance, with vLLM's settings of its offloading connector.

    A chunk has room for one block of any group and takes ``chunk_bytes``. ``store_threshold`` is
    how often a block is offered before it is stored; ``max_tracker_size`` limits the blocks whose
    offers are counted. With ``offload_prompt_only``, only blocks of prompts are stored. Bandwidths
    are in bytes per second, 25e9 by default; latencies are in seconds per transfer, 200e-6 by
    default. Transfers in one direction take turns.

    ``eviction_policy="adaptive"`` is not vLLM's. Blocks are stored when the pool is about to evict
    them, if one pool of both sizes would keep them; answers are stored too. It has no
    ``store_threshold``, and ``offload_prompt_only`` has no effect on it.

    Raises :class:`ConfigError` for values out of range.
    """

    def __new__(
        cls,
        num_chunks: int,
        chunk_bytes: int,
        *,
        eviction_policy: HostMemoryPolicyName = "lru",
        store_threshold: int = 0,
        max_tracker_size: int = 64_000,
        offload_prompt_only: bool = True,
        load_bandwidth: float | None = None,
        load_latency: float | None = None,
        store_bandwidth: float | None = None,
        store_latency: float | None = None,
    ) -> Self: ...
    num_chunks: int
    chunk_bytes: int
    eviction_policy: HostMemoryPolicyName
    store_threshold: int
    max_tracker_size: int
    offload_prompt_only: bool
    load_bandwidth: float
    load_latency: float
    store_bandwidth: float
    store_latency: float
    def __getnewargs_ex__(self) -> tuple[tuple[int, int], dict[str, Any]]: ...

@final
class HostMemoryResult:
    num_chunks: int
    """Chunks of all instances."""
    chunk_bytes: int
    stored_chunks: int
    stored_tail_chunks: int
    """Stored chunks of windows and states."""
    loads: int
    all_loaded_tokens: int
    """Tokens that loads brought, also when a preempted request loads again.
    :attr:`SimulationResult.loaded_tokens` counts the first hit of each request only."""
    loaded_chunks: int
    loaded_chunks_in_pool: int
    """Loaded chunks whose blocks the pool had too."""
    evicted_chunks: int
    never_loaded_chunks: int
    """Chunks that were evicted before any load."""
    refused_offers: int
    """Offers of chunks for which there was no room."""
    skipped_chunks: int
    """Chunks that were offered and not stored because of ``store_threshold``."""
    held_twice_share: float | None
    """Share of the chunks whose blocks the pool had too, in samples over the run."""
    without_tail_tokens: int
    """Prompt tokens whose full attention was in GPU and CPU memory together, but whose window or
    state was in neither."""
    store_seconds: float
    """Time that transfers to CPU memory took together; 0 if no time passed."""
    load_seconds: float
    fence_seconds: float
    """Time that steps waited for stores of blocks that they needed."""

@final
class StepTime:
    """How long a step takes, in seconds. ``base`` counts once. ``prefill`` counts for each token of
    a prompt, and for each token that a preempted request computes again. ``context`` counts for
    each token that was computed before and is attended to. ``running`` counts for each request in
    the step.

    Defaults are round figures for a dense model of 8 billion parameters in bfloat16 on one H200.
    Raises :class:`ConfigError` for times below 0 or above a day, and for steps that take no time.
    """

    def __new__(
        cls,
        *,
        base: float | None = None,
        prefill: float | None = None,
        context: float | None = None,
        running: float | None = None,
    ) -> Self: ...
    base: float
    prefill: float
    context: float
    running: float
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@final
class Serving:
    """How time passes in a run.

    Requests arrive at the trace's times, ``speed`` seconds of the trace in a second. With
    ``closed_loop``, requests that wait for others arrive after them (:meth:`Trace.close_loop`).
    With ``speed=None``, a request arrives as soon as another may run. ``router`` chooses one of
    ``instances`` for each request. ``weights`` replace the default weights of the router:

    - round-robin
    - least-loaded (as vLLM's data-parallel engines; ``pressure``, 6)
    - session
    - recorded (the instance that :meth:`Trace.start_part` names)
    - prefix (NVIDIA Dynamo's cost; ``overlap``, 1)
    - scored (as llm-d; ``prefix``, 3, ``queue``, 2, ``cache``, 2)

    With ``as_recorded``, recorded steps that are followed take the time that
    :meth:`Trace.push_durations` gave them, and ``step_time`` is only for work that differs. Without
    those times the result has none.

    Raises :class:`ConfigError` for a speed outside 0.001 to 1,000,000, instances outside 1 to
    1,024, and routers or weights that do not exist.
    """

    def __new__(
        cls,
        *,
        step_time: StepTime | None = None,
        speed: float | None = None,
        closed_loop: bool = False,
        instances: int = 1,
        router: str = "round-robin",
        weights: Mapping[str, float] | None = None,
        as_recorded: bool = False,
    ) -> Self: ...
    step_time: StepTime
    speed: float | None
    closed_loop: bool
    instances: int
    router: str
    weights: dict[str, float]
    as_recorded: bool
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@final
class ServingResult:
    total: InstanceResult
    """All instances together. Rates and shares refer to the time of all."""
    instances: list[InstanceResult]
    instance_of: NDArray[np.int64]
    """Shape (requests in the trace,): the instance of each, from 0."""
    moments: NDArray[np.float64]
    """Shape (requests in the trace, 3): when each arrived, had its first token and its last, in
    seconds since the first arrival; nan if there is no token."""
    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]: ...
    @classmethod
    def _from_bytes(cls, bytes: bytes) -> Self: ...

@final
class InstanceResult:
    """The figures of one instance, or of all together. Times are in seconds. Rejected requests and
    requests that warm the cache are in no count of requests and tokens."""

    requests: int
    prompt_tokens: int
    hit_tokens: int
    generated_tokens: int
    preemptions: int
    evictions: int
    steps: int
    makespan_seconds: float
    """From the first arrival to the end of the last step of any instance."""
    utilisation: float
    """Share of this time that was spent in steps, 0.0 to 1.0."""
    running_requests: float
    """Requests in a step, on average over an instance's time; 0 while it is idle."""
    time_to_first_token: tuple[float, float, float] | None
    """p50, p90 and p99 of the time from arrival to the first token; None without any token."""
    time_between_tokens: tuple[float, float, float] | None
    """The same for the time from one token of a request to its next, over all of them, at most 0.1
    % too long. None if no request has two tokens."""
    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]: ...
    @classmethod
    def _from_bytes(cls, bytes: bytes) -> Self: ...

@final
class SimulationResult:
    serving: ServingResult | None
    """The figures of the clock; None if no time passed."""
    requests: int
    rejected_requests: int
    """Requests that can never fit the pool and were skipped."""
    prompt_tokens: int
    generated_tokens: int
    hit_tokens: int
    """Prompt tokens found cached when each request was first admitted."""
    loaded_tokens: int
    """Hit tokens that were loaded from CPU memory."""
    loaded_per_request: NDArray[np.int64]
    """Shape (requests in the trace,): the same for each request; -1 for a rejected request."""
    host_memory: HostMemoryResult | None
    """The counts of CPU memory; None without it."""
    hit_answer_tokens: int | None
    """Hit tokens in blocks with generated tokens; None without adaptive retention."""
    loss_tokens: list[int]
    """Prompt tokens that were not found, by reason: a block of full attention was evicted; a
    window's blocks or a state was evicted; nothing that would have served a hit was ever cached; no
    request had computed them, or no hit could end after them. With ``hit_tokens`` they add up to
    ``prompt_tokens``."""
    losses_per_request: NDArray[np.int64]
    """Shape (requests in the trace, 4): the same for each request; -1 for a rejected request."""
    outcomes_per_request: NDArray[np.int64]
    """Shape (requests in the trace, 10): prompt tokens by outcome, in the order of
    ``kvoxide.outcomes.OUTCOMES``; -1 for a rejected request. ``other_salt_or_adapter`` is always 0,
    since a trace does not show it."""
    bound_hit_tokens: int | None
    """Prompt tokens that a policy which knows the future could hit under this run's schedule, at
    least ``hit_tokens``. docs/reference/replay.md states the assumptions. None if it was not asked
    for."""
    bound_per_request: NDArray[np.int64] | None
    """Shape (requests in the trace,): the contribution of each request, -1 if it does not count.
    One may hit less so that others hit more, so only the sum is a bound."""
    bound_seconds: float | None
    """Time that it took to compute the bound."""
    evictions: int
    """Cached blocks that lost their hash to reuse."""
    preemptions: int
    peak_used_blocks: int
    cached_blocks: int
    """Blocks left cached at the end."""
    steps: int
    schedule_seconds: tuple[float, float, float]
    """p50, p99 and maximum time of one scheduling call (look-up and allocation of one request in
    one step), seconds."""
    step_seconds: tuple[float, float, float]
    """The same for a whole step's calls into the manager."""
    wall_seconds: float
    per_request: NDArray[np.int64]
    """Shape (requests in the trace, 4): prompt_tokens, output_tokens, hit_tokens, preemptions.
    hit_tokens is -1 for a rejected request."""
    timeline: NDArray[np.float64]
    """Shape (at most 1000, 4): requests finished, used share, cached share and pinned share of
    the pool, sampled evenly over the run."""
    retention_timeline: NDArray[np.float64]
    """Shape (at most 100, 10), sampled evenly over the run. The first three columns: requests
    finished, prompt tokens and hit tokens of the requests admitted so far. The next five are shares
    of the pool that add up to 1: in use, free and cached for full attention, free and cached for
    windows and states, allocated last (protected or pinned), free without a hash. The last two:
    evicted blocks so far, of full attention, and of windows and states. Empty for the pool that
    never evicts, unless a group has states."""
    default_hit_tokens: int | None
    """Prompt tokens that the default policy would have hit, as adaptive retention estimates it in a
    server; None for other policies and for several instances. If CPU memory decides with
    ``adaptive`` too, hits in both memories, with LRU in CPU memory."""
    @property
    @deprecated("use scoring_functions")
    def orderings(self) -> list[str | None]: ...
    scoring_functions: list[str | None]
    """The scoring function in force at each of these points; None without adaptive retention."""
    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]: ...
    @classmethod
    def _from_bytes(cls, bytes: bytes) -> Self: ...
