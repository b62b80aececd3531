"""Tests of requests from token arrays and from ready-made hashes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kvoxide import BlockHasher, Request, RequestStatus

from tests.testing.small import (
    admit,
    allocate,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
)

TOKENS = [5, 0, 70_000, 128_255, 1, 2, 3, 4, 9, 9]
HASHER = BlockHasher(4)


def expected_hashes() -> list[bytes]:
    return HASHER.hash_tokens(TOKENS)


@pytest.mark.parametrize(
    "convert",
    [
        lambda tokens: np.array(tokens, dtype=np.int32),
        lambda tokens: np.array(tokens, dtype=np.int64),
        lambda tokens: np.array(tokens, dtype=np.uint32),
        lambda tokens: np.repeat(np.array(tokens), 2)[::2],
        list,
        tuple,
    ],
    ids=["int32", "int64", "uint32", "strided", "list", "tuple"],
)
def test_tokens_may_come_as(convert: Callable[[list[int]], Any]) -> None:
    request = Request("a", convert(TOKENS), block_hasher=HASHER)
    assert request.request_id == "a"
    assert (request.num_prompt_tokens, request.num_tokens) == (10, 10)
    assert request.all_token_ids.dtype == np.int64
    assert request.all_token_ids.tolist() == TOKENS
    assert request.block_hashes == expected_hashes()
    assert HASHER.hash_tokens(convert(TOKENS)) == expected_hashes()


def test_tokens_without_a_hasher_are_not_cached() -> None:
    manager = make_manager(full(4))
    request = Request("a", TOKENS)
    assert request.block_hashes == []
    assert admit(manager, request) == 0
    assert manager.block_pool.get_num_cached_blocks() == 0


def test_an_empty_array_of_tokens_has_no_hashes() -> None:
    assert HASHER.hash_tokens(np.array([], dtype=np.int32)) == []


def test_all_token_ids_is_a_copy() -> None:
    request = Request("a", TOKENS, block_hasher=HASHER)
    request.all_token_ids[0] = 77
    assert request.all_token_ids.tolist() == TOKENS


def test_the_array_may_change_afterwards() -> None:
    tokens = np.array(TOKENS, dtype=np.int32)
    request = Request("a", tokens, block_hasher=HASHER)
    tokens[:] = 0
    assert request.all_token_ids.tolist() == TOKENS


def test_defaults_of_a_request() -> None:
    request = Request("a", TOKENS, block_hasher=HASHER)
    assert (request.num_computed_tokens, request.num_in_flight_tokens) == (0, 0)
    assert (request.shared_prefix_boundary, request.num_preemptions) == (0, 0)
    assert request.status == RequestStatus.WAITING
    assert not request.skip_reading_prefix_cache
    assert request.session_id is None


def test_the_scheduler_writes_what_is_its_own() -> None:
    request = Request("a", TOKENS, block_hasher=HASHER, session_id="s")
    request.num_computed_tokens = 4
    request.num_in_flight_tokens = 2
    request.shared_prefix_boundary = 8
    request.num_preemptions = 1
    request.status = RequestStatus.PREEMPTED
    assert (request.num_computed_tokens, request.num_in_flight_tokens) == (4, 2)
    assert (request.shared_prefix_boundary, request.num_preemptions) == (8, 1)
    assert request.status == RequestStatus.PREEMPTED != RequestStatus.RUNNING
    assert request.session_id == "s"


@pytest.mark.parametrize(
    "appended",
    [
        [TOKENS[8], TOKENS[9]],
        [TOKENS[8:]],
        [np.array(TOKENS[8:], dtype=np.int32)],
        [tuple(TOKENS[8:])],
        [[], TOKENS[8:]],
    ],
    ids=["int by int", "list", "array", "tuple", "empty"],
)
def test_output_tokens_may_come_as(appended: list[Any]) -> None:
    request = Request("a", TOKENS[:8], block_hasher=HASHER)
    for tokens in appended:
        request.append_output_token_ids(tokens)
    assert (request.num_prompt_tokens, request.num_tokens) == (8, 10)
    assert request.all_token_ids.tolist() == TOKENS
    assert request.block_hashes == expected_hashes()


def test_output_tokens_fill_a_block() -> None:
    request = Request("a", TOKENS[:7], block_hasher=HASHER)
    assert len(request.block_hashes) == 1
    request.append_output_token_ids(TOKENS[7])
    assert len(request.block_hashes) == 2


def as_bytes(hashes: list[bytes]) -> list[bytes]:
    return hashes


def as_array(hashes: list[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(hashes), -1)


@pytest.mark.parametrize("convert", [as_bytes, as_array])
def test_ready_made_hashes(convert: Callable[[list[bytes]], Any]) -> None:
    request = Request("a", block_hashes=convert(expected_hashes()), num_prompt_tokens=10)
    assert (request.num_prompt_tokens, request.num_tokens) == (10, 10)
    assert request.block_hashes == expected_hashes()
    assert request.all_token_ids.tolist() == []


@pytest.mark.parametrize("length", [1, 8, 16, 31, 32])
def test_ready_made_hashes_may_be_short(length: int) -> None:
    manager = make_manager(full(4))
    hashes = [bytes([i + 1]) * length for i in range(2)]
    request = Request("a", block_hashes=hashes, num_prompt_tokens=9)
    assert request.block_hashes == hashes
    admit(manager, request)
    manager.free(request)
    again = Request("b", block_hashes=hashes, num_prompt_tokens=9)
    hit, num_hit, _ = manager.get_computed_blocks(again)
    assert (hit.get_block_ids(), num_hit) == (([1, 2],), 8)
    assert hit.blocks[0][0].block_hash == hashes[0] + bytes(4)  # and the group's number


@pytest.mark.parametrize("convert", [as_bytes, as_array])
def test_ready_made_hashes_find_what_tokens_cached(
    convert: Callable[[list[bytes]], Any],
) -> None:
    manager = make_manager(full(4))
    serve(manager, "a", TOKENS)
    request = Request("b", block_hashes=convert(expected_hashes()), num_prompt_tokens=10)
    assert manager.get_computed_blocks(request)[1] == 8


def test_ready_made_hashes_are_appended_with_their_tokens() -> None:
    manager = make_manager(full(4))
    request = Request("a", block_hashes=expected_hashes()[:1], num_prompt_tokens=7)
    admit(manager, request)
    request.append_block_hashes(expected_hashes()[1:], 1)
    request.append_block_hashes([], 1)
    assert (request.num_prompt_tokens, request.num_tokens) == (7, 9)
    assert request.block_hashes == expected_hashes()
    allocate(manager, request, 2)
    assert num_hit_tokens(manager, TOKENS) == 8


def test_a_salt_keeps_tenants_apart() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", TOKENS, cache_salt="one")
    for salt, hit in [("one", 8), ("two", 0), (None, 0)]:
        request = make_request(manager, "b", TOKENS, cache_salt=salt)
        assert manager.get_computed_blocks(request)[1] == hit


def test_an_adapter_keeps_its_blocks_to_itself() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", TOKENS, lora=("sql", "v1"))
    for lora, hit in [(("sql", "v1"), 8), (("sql", "v2"), 0), (None, 0)]:
        request = make_request(manager, "b", TOKENS, lora=lora)
        assert manager.get_computed_blocks(request)[1] == hit


def test_managers_do_not_share_requests_or_blocks() -> None:
    managers = [make_manager(full(4)) for _ in range(2)]
    request = make_request(managers[0], "a", TOKENS)
    admit(managers[0], request)
    assert num_hit_tokens(managers[1], TOKENS) == 0
