"""The calls that the harness makes on a manager. Their results are values that can be compared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from kvoxide.lab.verify.managers.scenarios import Scenario

BlockIds: TypeAlias = tuple[list[int], ...]
Event: TypeAlias = dict[str, object]
Offloads: TypeAlias = dict[str, list[tuple[int, int, int]]]
Status: TypeAlias = Literal["WAITING", "RUNNING", "PREEMPTED"]
HitForm: TypeAlias = Literal["hit", "none", "empty", "new_empty", "padded", "rebuilt"]


STATS_FIELDS = (
    "reset",
    "requests",
    "queries",
    "hits",
    "preempted_requests",
    "preempted_queries",
    "preempted_hits",
)


@dataclass(frozen=True)
class NewRequest:
    """The arguments of a new request. If given, ``block_hashes`` replace hashing on the side that
    takes ready-made hashes. An image begins at each token that is a multiple of ``image_interval``,
    unless that is 0."""

    request_id: str
    prompt: list[int]
    cache_salt: str | None
    lora: tuple[str, str] | None
    session_id: str | None
    skip_lookup: bool
    full_report: bool
    image_interval: int = 0
    max_tokens: int = 1
    block_hashes: list[bytes] | None = None


@dataclass(frozen=True)
class Progress:
    """The attributes of a request that the scheduler writes."""

    num_computed_tokens: int
    num_in_flight_tokens: int
    shared_prefix_boundary: int
    num_preemptions: int
    status: Status


@dataclass(frozen=True)
class Hit:
    block_ids: BlockIds
    num_tokens: int
    shared_prefix_boundary: int
    diverged: bool = False


@dataclass(frozen=True)
class Demand:
    """Arguments of ``get_num_blocks_to_allocate``. ``with_hit`` passes the last look-up's
    blocks."""

    num_tokens: int
    with_hit: bool
    total_computed_tokens: int
    num_local_computed_tokens: int
    apply_admission_cap: bool
    num_encoder_tokens: int = 0
    prefill_end: int = 0


@dataclass(frozen=True)
class Allocation:
    """Arguments of ``allocate_slots``. ``hit_form`` says how the hit's blocks are passed."""

    num_new_tokens: int
    num_new_computed_tokens: int = 0
    hit_form: HitForm = "none"
    num_lookahead_tokens: int = 0
    num_external_computed_tokens: int = 0
    delay_cache_blocks: bool = False
    full_sequence_must_fit: bool = False
    reserved_blocks: int = 0
    has_scheduled_reqs: bool = True
    skip_zeroing_group_ids: tuple[int, ...] = ()
    num_encoder_tokens: int = 0


@dataclass(frozen=True)
class Copies:
    """Blocks that the worker copies, and blocks that are kept until it has copied them."""

    pairs: list[tuple[int, int]]
    kept: list[int]


@dataclass(frozen=True)
class Events:
    """Events. ``unordered`` are ranges of events whose order vLLM leaves open."""

    events: list[Event]
    unordered: list[tuple[int, int]]


@dataclass(frozen=True)
class TableViews:
    """The same block table, as each method shows it."""

    for_computed_tokens: BlockIds
    selected: BlockIds | None
    unhashed: list[list[int]]
    as_arrays: BlockIds
    as_blocks: list[list[tuple[int, int, bool]]]
    num_groups: int


@dataclass(frozen=True)
class PoolState:
    free_queue: list[int]
    num_free_blocks: int
    usage: float
    ref_counts: list[int]
    block_hashes: list[bytes | None]
    block_hash_num_tokens: list[int | None]


@dataclass(frozen=True)
class HitViews:
    """The blocks of a look-up, as each method of ``KVCacheBlocks`` shows them."""

    as_blocks: list[list[tuple[int, int, bytes | None, int | None]]]
    types: list[str]
    ids_or_none: BlockIds | None
    unhashed: list[list[int]]
    is_empty: bool
    equals_itself_rebuilt: bool
    differs_from_itself_twice: bool
    table_with_hit: BlockIds


@dataclass(frozen=True)
class Inside:
    """State that only managers with vLLM's interface show. ``callbacks`` and ``wrapped_calls`` are
    the calls since it was last read."""

    further_hashes: dict[int, set[bytes]]
    num_keys: int
    num_pending_events: int
    tables: list[dict[str, list[int]]]
    num_cached_blocks: list[dict[str, int]]
    callbacks: list[tuple[str, int]]
    wrapped_calls: list[object]


@dataclass(frozen=True)
class Index:
    """The mapping inside the pool's index, read in each possible way. ``found`` has one key's
    blocks."""

    items: dict[bytes, list[int]]
    num_values: int
    num_keys: int
    found: list[list[int] | None]


class Driver(Protocol):
    """One side. It keeps the blocks of a look-up, and blocks that were popped, held or taken."""

    has_vllm_interface: bool

    @property
    def errors_change_nothing(self) -> bool: ...

    def new_request(self, request: NewRequest) -> list[bytes]: ...
    def append_tokens(
        self, request_id: str, tokens: list[int], new_hashes: list[bytes] | None
    ) -> list[bytes]: ...
    def set_progress(self, request_id: str, progress: Progress) -> None: ...
    def forget(self, request_id: str) -> None: ...

    def look_up(self, request_id: str, max_hit: int | None, for_connector: bool) -> Hit: ...
    def truncate_hit(self, request_id: str, num_tokens: int) -> BlockIds: ...
    def blocks_needed(self, request_id: str, demand: Demand) -> int: ...
    def allocate(self, request_id: str, allocation: Allocation) -> BlockIds | None: ...
    def cache_blocks(self, request_id: str, num_computed_tokens: int) -> None: ...
    def remove_skipped(
        self, request_id: str, processed_tokens: int, num_prompt_tokens: int | None
    ) -> None: ...
    def free(self, request_id: str) -> None: ...
    def pop_blocks(self, request_id: str) -> list[int]: ...
    def return_popped(self) -> None: ...

    def block_ids(self, request_id: str) -> BlockIds: ...
    def table_views(self, request_id: str, num_computed_tokens: int) -> TableViews: ...
    def estimate_cached_tokens(self, request_id: str) -> int: ...
    def num_common_prefix_blocks(self, request_id: str) -> list[int]: ...

    def evict(self, block_ids: list[int]) -> None: ...
    def reset_prefix_cache(self) -> bool: ...
    def take_events(self) -> Events: ...
    def take_new_block_ids(self) -> list[int]: ...
    def record_for_zeroing(self, request_id: str, start_token: int) -> None: ...
    def record_stats(self, request_id: str, num_hits: int) -> None: ...
    def take_stats(self) -> dict[str, int] | None: ...

    def start_step(self) -> None: ...
    def take_copies(self) -> Copies: ...
    def release_copied(self) -> None: ...
    def take_offloads(self) -> Offloads: ...
    def finalize_tails(self, request_id: str) -> list[tuple[int, int, int]]: ...

    def cached_block(self, block_hash: bytes, group_ids: list[int]) -> list[int] | None: ...
    def hold_cached(self, block_hash: bytes, group_ids: list[int]) -> list[int] | None: ...
    def take_blocks(self, num_blocks: int) -> list[int]: ...
    def release_held(self) -> None: ...

    def num_free_blocks(self) -> int: ...
    def state(self) -> PoolState: ...
    def state_digest(self) -> bytes: ...


class InsideDriver(Driver, Protocol):
    """A side whose manager has vLLM's interface, including attributes of pool and coordinator."""

    def inside(self) -> Inside: ...
    def hit_views(self, request_id: str) -> HitViews: ...
    def find_hit(self, request_id: str, num_hashes: int, max_length: int) -> tuple[Any, ...]: ...
    def find_hit_per_group(
        self, request_id: str, num_hashes: int, max_length: int
    ) -> tuple[Any, ...]: ...
    def unhashed_ids(self, request_id: str) -> list[int]: ...
    def ids_of_groups(self, request_id: str, group_ids: list[int]) -> BlockIds: ...
    def free_ids_after(self, block_id: int | None) -> list[int]: ...
    def unpin_held(self, copies: int) -> None: ...
    def unpin(self, block_ids: list[int]) -> None: ...
    def allocate_with_held(self, request_id: str, num_groups: int) -> BlockIds | None: ...
    def truncate_groups(self, request_id: str, num_groups: int) -> BlockIds: ...
    def set_hash(self, block_id: int, block_hash: bytes) -> None: ...
    def set_num_free(self, num_blocks: int | None) -> int: ...
    def index(self, block_hash: bytes) -> Index: ...
    def wrap(self, owner: str, name: str) -> None: ...
    def set_field(self, owner: str, name: str, value: object) -> None: ...
    def is_vllms_own(self) -> bool: ...
    def remembered(self) -> object: ...


MakeDriver: TypeAlias = Callable[[Scenario], Driver]
