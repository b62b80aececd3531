"""Tests that requests are read as Python would read them, whatever their class does with its
attributes."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.adapter.support import _length_of_a_list  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

from tests.testing.small_world import BLOCK_SIZE, full, make_manager, make_request  # noqa: E402

NUM_TOKENS = 5 * BLOCK_SIZE
# The attributes of a request that calls read.
ATTRIBUTES = [
    "request_id",
    "status",
    "num_tokens",
    "num_prompt_tokens",
    "num_computed_tokens",
    "num_in_flight_tokens",
    "shared_prefix_boundary",
    "block_hashes",
    "skip_reading_prefix_cache",
]


class Forwarding:
    """Has no attributes of its own."""

    def __init__(self, request: Any) -> None:
        self.__dict__["_request"] = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class Intercepting(Request):  # type: ignore[misc]
    """Answers before its dictionary is read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "num_computed_tokens":
            return 2 * BLOCK_SIZE
        return super().__getattribute__(name)


class Computing(Request):  # type: ignore[misc]
    """Computes attributes that other classes store."""

    @property
    def num_computed_tokens(self) -> int:
        return 2 * BLOCK_SIZE

    @num_computed_tokens.setter
    def num_computed_tokens(self, value: int) -> None:
        pass


class Longer(Request):  # type: ignore[misc]
    """Counts its tokens in its own way."""

    @property
    def num_tokens(self) -> int:
        return 3 * BLOCK_SIZE


def of_class(cls: Any) -> Any:
    request = make_request("a", list(range(NUM_TOKENS)))
    request.__class__ = cls
    return request


def num_cached(request: Any) -> Any:
    """Return how many tokens of a request are cached after slots for all of it were allocated."""
    manager = make_manager(full())
    assert type(manager).__module__ == native_class().__module__
    assert manager.allocate_slots(request, NUM_TOKENS - request.num_computed_tokens)
    return manager.estimate_cached_tokens(request)


def test_vllms_own_request_is_read_out_of_its_dictionary() -> None:
    property_and_list = _length_of_a_list(Request, "num_tokens")
    assert property_and_list == (Request.num_tokens, "_all_token_ids")
    request = of_class(Request)
    assert num_cached(request) == NUM_TOKENS


@pytest.mark.parametrize("cls", [Intercepting, Computing])
def test_what_a_class_computes_is_not_read_out_of_the_dictionary(cls: type) -> None:
    request = of_class(cls)
    request.__dict__["num_computed_tokens"] = 0
    manager = make_manager(full())
    manager.allocate_slots(request, BLOCK_SIZE)
    assert len(manager.get_block_ids(request.request_id)[0]) == 3


def test_a_class_that_counts_its_tokens_itself_is_asked() -> None:
    assert num_cached(of_class(Longer)) == 3 * BLOCK_SIZE


def test_requests_without_attributes_of_their_own_are_asked() -> None:
    assert num_cached(Forwarding(make_request("a", list(range(NUM_TOKENS))))) == NUM_TOKENS


def test_a_namespace_is_a_request() -> None:
    request = make_request("a", list(range(NUM_TOKENS)))
    named = SimpleNamespace(**{name: getattr(request, name) for name in ATTRIBUTES})
    assert num_cached(named) == NUM_TOKENS


def test_requests_of_several_classes_take_turns() -> None:
    manager = make_manager(full())
    classes: list[tuple[Any, int]] = [(Request, NUM_TOKENS), (Longer, 3 * BLOCK_SIZE)]
    for round_ in range(3):
        for cls, num_tokens in classes:
            request = make_request(f"{cls.__name__}-{round_}", [round_] * NUM_TOKENS)
            request.__class__ = cls
            manager.allocate_slots(request, NUM_TOKENS)
            assert manager.estimate_cached_tokens(request) == num_tokens


def test_a_missing_attribute_is_named() -> None:
    request = of_class(Request)
    del request.__dict__["num_in_flight_tokens"]
    with pytest.raises(AttributeError, match="num_in_flight_tokens"):
        make_manager(full()).allocate_slots(request, 1)


def _twice(self: Any) -> int:
    return 2 * len(self.counted)


def test_only_a_plain_length_is_taken_for_one() -> None:
    class Odd:
        plain = property(lambda self: len(self.tokens))
        twice = property(_twice)
        other = property(lambda self: sum(self.tokens))
        value = 3

    assert _length_of_a_list(Odd, "plain") == (Odd.plain, "tokens")
    for name in ("twice", "other", "value"):
        assert _length_of_a_list(Odd, name) is None
