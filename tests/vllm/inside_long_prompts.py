"""Tests that the hashes of a long prompt are read part by part, each before its blocks are
cached."""

from collections.abc import Sequence
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.plugin.hashing import CHAIN_END  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402

from tests.testing.small_world import (  # noqa: E402
    BLOCK_SIZE,
    config,
    full,
    make_request,
    states,
    window,
)

NUM_HASHES = 20_000
CHUNK = 512 * BLOCK_SIZE
TOKENS = [n % 50_000 for n in range(NUM_HASHES * BLOCK_SIZE)]
READ_AT_ONCE = 8192
"""At most this many hashes are read ahead of a chunk."""


class Watched(Sequence[bytes]):
    """The hashes of a request, which note how far they were read."""

    def __init__(self, hashes: list[bytes]) -> None:
        self.hashes = hashes
        self.num_read = 0

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, index: Any) -> Any:
        assert isinstance(index, int)
        self.num_read = max(self.num_read, index + 1)
        return self.hashes[index]


def make_manager(*specs: Any, block_size: int = BLOCK_SIZE) -> Any:
    return KVCacheManager(
        config(*specs, num_blocks=3 * NUM_HASHES),
        max_model_len=len(TOKENS) + CHUNK,
        scheduler_block_size=block_size,
        hash_block_size=BLOCK_SIZE,
    )


def hash_of(manager: Any, request: Any, position: int) -> bytes | None:
    block = manager.get_block_ids(request.request_id)[0][position]
    key = manager.block_pool.blocks[block].block_hash
    return None if key is None else key[:-4]


@pytest.fixture
def request_() -> Any:
    return make_request("long", TOKENS)


def test_a_chunk_reads_its_own_hashes_and_some_behind_it(request_: Any) -> None:
    manager = make_manager(full(), window())
    is_native = type(manager) is native_class()
    assert is_native
    hashes = request_.block_hashes
    request_.block_hashes = watched = Watched(hashes)
    for start in range(0, len(TOKENS), CHUNK):
        num_tokens = min(CHUNK, len(TOKENS) - start)
        assert manager.allocate_slots(request_, num_tokens) is not None
        request_.num_computed_tokens += num_tokens
        num_needed = request_.num_computed_tokens // BLOCK_SIZE
        assert num_needed <= watched.num_read <= num_needed + READ_AT_ONCE
        assert hash_of(manager, request_, num_needed - 1) == hashes[num_needed - 1]
    assert [hash_of(manager, request_, i) for i in range(NUM_HASHES)] == hashes
    again = make_request("again", [*TOKENS, 1])
    assert manager.get_computed_blocks(again)[1] == len(TOKENS)


def test_hashes_that_change_before_they_are_read(request_: Any) -> None:
    """As in vLLM, a list that is not known to be the hasher's is read chunk by chunk: each hash
    with the chunk that caches its block."""
    manager = make_manager(full())
    del vars(request_)[CHAIN_END]
    assert manager.allocate_slots(request_, CHUNK) is not None
    request_.num_computed_tokens = CHUNK
    late = 3 * READ_AT_ONCE // 2
    request_.block_hashes[late] = b"x" * len(request_.block_hashes[late])
    for _ in range(30):
        assert manager.allocate_slots(request_, CHUNK) is not None
        request_.num_computed_tokens += CHUNK
    assert hash_of(manager, request_, late) == request_.block_hashes[late]


def test_another_list_in_the_middle_of_a_prompt(request_: Any) -> None:
    manager = make_manager(full())
    assert manager.allocate_slots(request_, CHUNK) is not None
    request_.num_computed_tokens = CHUNK
    other = make_request("other", [7, *TOKENS[1:]])
    request_.block_hashes = other.block_hashes
    assert manager.allocate_slots(request_, CHUNK) is not None
    first_new = CHUNK // BLOCK_SIZE
    assert hash_of(manager, request_, first_new) == other.block_hashes[first_new]


def test_a_bad_hash_far_behind_is_found_by_its_own_chunk(request_: Any) -> None:
    manager = make_manager(full())
    request_.block_hashes[-1] = b"short"
    assert manager.allocate_slots(request_, CHUNK) is not None
    request_.num_computed_tokens = CHUNK
    with pytest.raises(ValueError, match="5 bytes; this manager's hashes have 32"):
        manager.allocate_slots(request_, len(TOKENS) - CHUNK)
    assert len(manager.get_block_ids(request_.request_id)[0]) == CHUNK // BLOCK_SIZE


def test_a_prompt_that_begins_anew_is_read_anew(request_: Any) -> None:
    manager = make_manager(full())
    for num_chunks in (30, 2):
        request_.num_computed_tokens = 0
        for _ in range(num_chunks):
            assert manager.allocate_slots(request_, CHUNK) is not None
            request_.num_computed_tokens += CHUNK
        manager.free(request_)
    hit = manager.get_computed_blocks(make_request("again", TOKENS))
    assert hit[1] == 30 * CHUNK


def test_states_are_cached_at_the_end_of_a_long_prompt(request_: Any) -> None:
    manager = make_manager(full(), states(), block_size=3 * BLOCK_SIZE)
    num_tokens = len(TOKENS) // (3 * BLOCK_SIZE) * 3 * BLOCK_SIZE
    for start in range(0, num_tokens, 3 * CHUNK):
        new = min(3 * CHUNK, num_tokens - start)
        assert manager.allocate_slots(request_, new) is not None
        request_.num_computed_tokens += new
    manager.free(request_)
    hit = manager.get_computed_blocks(make_request("again", TOKENS))
    assert hit[1] == num_tokens
