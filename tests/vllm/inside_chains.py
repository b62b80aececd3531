"""Tests which lists of block hashes are trusted as a chain of the engine's hasher, so that a
look-up reads only a few of them. A list must have the length that the hasher left, and end with the
object that the hasher created."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.plugin.hashing import CHAIN_END  # noqa: E402

from tests.testing.small_world import BLOCK_SIZE, full, make_manager, make_request  # noqa: E402

NUM_BLOCKS = 40
TOKENS = list(range(NUM_BLOCKS * BLOCK_SIZE + 3))
# The hash at this position is wrong. Only code that reads it notices.
WRONG = 20


@pytest.fixture
def manager() -> Any:
    """Return a manager that has the prompt cached."""
    made = make_manager(full())
    is_native = type(made) is native_class()
    assert is_native
    request = make_request("first", TOKENS)
    made.get_computed_blocks(request)
    assert made.allocate_slots(request, len(TOKENS)) is not None
    made.free(request)
    return made


def hit_of(manager: Any, request: Any) -> int:
    """Return how many blocks a look-up finds."""
    length: int = manager.get_computed_blocks(request)[1]
    return length // BLOCK_SIZE


def wrong_request() -> Any:
    request = make_request("second", TOKENS)
    request.block_hashes[WRONG] = b"x" * len(request.block_hashes[WRONG])
    return request


def test_what_the_hasher_made_is_not_read_again(manager: Any) -> None:
    request = wrong_request()
    assert vars(request)[CHAIN_END][:2] == (NUM_BLOCKS, request.block_hashes[-1])
    assert hit_of(manager, request) == NUM_BLOCKS


def test_a_request_that_grows_stays_a_chain(manager: Any) -> None:
    request = wrong_request()
    for token in range(2 * BLOCK_SIZE):
        request.append_output_token_ids(token)
    assert len(request.block_hashes) == NUM_BLOCKS + 2
    assert vars(request)[CHAIN_END][:2] == (NUM_BLOCKS + 2, request.block_hashes[-1])
    assert hit_of(manager, request) == NUM_BLOCKS


def test_the_first_hashes_are_in_rust_too(manager: Any) -> None:
    request = wrong_request()
    for token in range(2 * BLOCK_SIZE):
        request.append_output_token_ids(token)
    made = vars(request)[CHAIN_END][2]
    assert len(made) == NUM_BLOCKS
    other = make_manager(full())
    assert other.allocate_slots(request, NUM_BLOCKS * BLOCK_SIZE) is not None
    # The wrong hash was not read: the cached hashes are the hasher's.
    assert other.get_computed_blocks(make_request("third", TOKENS))[1] == NUM_BLOCKS * BLOCK_SIZE
    assert copy.deepcopy(made) is pickle.loads(pickle.dumps(made)) is None


def test_a_short_prompt_has_its_list_alone() -> None:
    assert vars(make_request("short", TOKENS[: 15 * BLOCK_SIZE]))[CHAIN_END][2] is None


def shorten(request: Any) -> None:
    request.block_hashes.pop()


def shorten_inside(request: Any) -> None:
    del request.block_hashes[WRONG + 1]


def lengthen(request: Any) -> None:
    request.block_hashes.append(request.block_hashes[-1])


def copy_the_end(request: Any) -> None:
    request.block_hashes[-1] = bytes(bytearray(request.block_hashes[-1]))


def replace(request: Any) -> None:
    request.block_hashes = tuple(request.block_hashes)


def forget(request: Any) -> None:
    del vars(request)[CHAIN_END]


def remember_something_else(request: Any) -> None:
    vars(request)[CHAIN_END] = "something else"


@pytest.mark.parametrize(
    "change",
    [shorten, shorten_inside, lengthen, copy_the_end, replace, forget, remember_something_else],
)
def test_any_other_list_is_read(manager: Any, change: Callable[[Any], None]) -> None:
    request = wrong_request()
    change(request)
    assert hit_of(manager, request) == WRONG


def test_hashes_behind_others_are_no_chain(manager: Any) -> None:
    request = wrong_request()
    shorten(request)
    for token in range(BLOCK_SIZE):
        request.append_output_token_ids(token)
    assert hit_of(manager, request) == WRONG
