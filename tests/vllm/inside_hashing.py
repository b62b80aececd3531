"""Compares block hashes of vLLM's requests from the engine's hasher and from vLLM's own."""

import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.lab.verify.hashers.drawing import (  # noqa: E402
    draw_options,
    draw_token,
    make_image,
    make_request,
)
from kvoxide.vllm.environment import recognise  # noqa: E402
from kvoxide.vllm.plugin import hashing  # noqa: E402
from vllm.lora.request import LoRARequest  # noqa: E402
from vllm.utils import hashing as functions  # noqa: E402
from vllm.v1.core import kv_cache_utils as utils  # noqa: E402

ALGORITHMS = hashing.ALGORITHMS
release = recognise().release
LOOKAHEADS = (0, 1, 2, 3) if release.has_hash_lookahead else (0,)

Hasher = Callable[[Any], list[bytes]]


@pytest.fixture(autouse=True)
def none_hash() -> Iterator[None]:
    before = getattr(utils, "NONE_HASH", None)
    utils.init_none_hash(functions.sha256)
    yield
    utils.NONE_HASH = before


def function(algorithm: str) -> Any:
    return getattr(functions, algorithm)


def hashers(algorithm: str, block_size: int, lookahead: int = 0) -> tuple[Hasher, Hasher]:
    """Return the engine's hasher and vLLM's own."""
    arguments = (block_size, function(algorithm), *([lookahead] if lookahead else []))
    ours = utils.get_request_block_hasher(*arguments)
    assert is_ours(ours)
    return ours, utils.get_request_block_hasher.__wrapped__(*arguments)


def is_ours(hasher: Hasher) -> bool:
    return hasher.__module__ == hashing.__name__


@pytest.fixture
def left_to_vllm(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the blocks that the engine left to vLLM's function."""
    seen: list[Any] = []
    original = hashing._RequestHasher._hash_one_block

    def hash_one_block(self: Any, parent: Any, tokens: Any, start: int, keys: Any) -> bytes:
        seen.append(start)
        return original(self, parent, tokens, start, keys)

    monkeypatch.setattr(hashing._RequestHasher, "_hash_one_block", hash_one_block)
    return seen


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("lookahead", LOOKAHEADS)
def test_random_requests_that_grow(algorithm: str, lookahead: int, left_to_vllm: list[Any]) -> None:
    rng = random.Random(f"{algorithm} {lookahead}")
    utils.init_none_hash(rng.choice((functions.sha256, functions.xxhash_cbor)))
    num_hashes = 0
    for _ in range(60):
        block_size = rng.choice((1, 2, 3, 4, 5, 16, 17, 64, 300))
        ours, stock = hashers(algorithm, block_size, lookahead)
        tokens = [draw_token(rng) for _ in range(rng.choice((1, 7, 60, 300)))]
        options = draw_options(rng, len(tokens))
        both = [make_request(list(tokens), hasher, **options) for hasher in (ours, stock)]
        for _ in range(rng.randrange(12)):
            more = [draw_token(rng) for _ in range(rng.choice((1, 1, 1, 2, 5, 50)))]
            for one in both:
                one.append_output_token_ids(more[0] if len(more) == 1 else more)
        assert both[0].block_hashes == both[1].block_hashes, (block_size, tokens, options)
        num_hashes += len(both[0].block_hashes)
    assert num_hashes > 400
    assert left_to_vllm == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("block_size", "lookahead"),
    list(zip((10_922, 13_107, 16_384, 21_845, 33_000, 70_000), cycle(LOOKAHEADS), strict=False)),
)
def test_blocks_of_several_frames(algorithm: str, lookahead: int, block_size: int) -> None:
    ours, stock = hashers(algorithm, block_size, lookahead)
    for tokens in of_every_width(2 * block_size + 3):
        for salt in (None, "s" * 66_000):
            plain = make_request(tokens, cache_salt=salt)
            hashes = ours(plain)
            assert hashes == stock(plain)
            assert len(hashes) == 2


@cache
def of_every_width(num_tokens: int) -> list[list[int]]:
    """Return tokens that take up to one byte, two, four and more."""
    rng = random.Random(num_tokens)
    limits = (256, 65_536, 2**31, 2**40)
    return [[rng.randrange(limit) for _ in range(num_tokens)] for limit in limits]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_frame_closes_at_the_same_token(algorithm: str) -> None:
    for block_size in range(65_536 // 5 - 14, 65_536 // 5 + 4):
        ours, stock = hashers(algorithm, block_size)
        plain = make_request([100_000] * block_size)
        assert ours(plain) == stock(plain)


@pytest.mark.parametrize("lookahead", LOOKAHEADS)
def test_the_same_key_across_the_end_of_a_frame(lookahead: int) -> None:
    lora = LoRARequest("n" * 300, 1, "p" * 300)
    for block_size in range(12_960, 13_100, 9):
        ours, stock = hashers("sha256", block_size, lookahead)
        tokens = [token for i in (9, 9, 5, 9, 9, 5, 5) for token in [10**i // 10**4] * block_size]
        adapted = make_request(tokens, lora_request=lora)
        assert ours(adapted) == stock(adapted), block_size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_of_every_length(algorithm: str) -> None:
    ours, stock = hashers(algorithm, 4)
    for length in (1, 23, 24, 254, 255, 256, 257, 65_535, 65_536, 65_537):
        salted = make_request([1] * 9, cache_salt="s" * length)
        assert ours(salted) == stock(salted), length


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "odd",
    [True, 2**63, 2**64, -(2**63) - 1, 2**2_100, np.int64(5), 1.5, None, "text"],
    ids=lambda odd: f"{type(odd).__name__} {str(odd)[:20]}",
)
def test_tokens_that_are_no_plain_numbers(
    algorithm: str, odd: Any, left_to_vllm: list[Any]
) -> None:
    for lookahead in LOOKAHEADS:
        del left_to_vllm[:]
        ours, stock = hashers(algorithm, 4, lookahead)
        tokens: list[Any] = list(range(40))
        tokens[17] = odd
        assert outcome(ours, tokens) == outcome(stock, tokens)
        assert left_to_vllm[0] == (12 if lookahead >= 2 else 16)
        assert len(left_to_vllm) <= 2


def outcome(hasher: Hasher, tokens: list[Any]) -> Any:
    try:
        return hasher(make_request(tokens))
    except Exception as error:
        return type(error)


class Text(str):
    """A text that pickles in its own way."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["\udc80", Text("x"), 7, 2**70, True, b"bytes", ("a", ("b",))])
def test_keys_of_any_type(algorithm: str, name: Any) -> None:
    ours, stock = hashers(algorithm, 4)
    lora = SimpleNamespace(lora_name=name, lora_path="path")

    def result(hasher: Hasher) -> Any:
        try:
            return hasher(make_request(list(range(19)), lora_request=lora))
        except Exception as error:
            return type(error)

    assert result(ours) == result(stock)


def test_many_odd_tokens_are_left_at_once(left_to_vllm: list[Any]) -> None:
    ours, stock = hashers("sha256", 4)
    few = make_request([True if i % 40 == 0 else i for i in range(400)])
    assert ours(few) == stock(few)
    assert len(left_to_vllm) == 10
    del left_to_vllm[:]
    many = make_request([True if i % 8 == 0 else i for i in range(400)])
    assert ours(many) == stock(many)
    assert len(left_to_vllm) == 100 - hashing.MAX_LEFT_BLOCKS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parents_of_any_length(algorithm: str) -> None:
    ours, stock = hashers(algorithm, 4)
    for none_hash in (b"x", b"y" * 16, b"z" * 32, b"l" * 300, b"f" * 70_000, bytearray(b"a"), 5):
        utils.NONE_HASH = none_hash
        plain = make_request(list(range(12)))
        assert ours(plain) == stock(plain)
        for known in (b"", b"k" * 16, b"k" * 32, b"k" * 40):
            plain.block_hashes = [known]
            assert ours(plain) == stock(plain)


def test_the_root_is_read_when_a_first_block_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    ours, stock = hashers("sha256", 4)
    plain = make_request([1, 2, 3, 4])
    first = ours(plain)
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    utils.init_none_hash(functions.sha256)
    assert first != ours(plain) == stock(plain)
    monkeypatch.delattr(utils, "NONE_HASH")
    for hasher in (ours, stock):
        with pytest.raises(NameError, match="NONE_HASH"):
            hasher(plain)


def test_the_same_adapter_in_a_long_prompt_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, left_to_vllm: list[Any]
) -> None:
    asked: list[int] = []
    original = utils.generate_block_hash_extra_keys

    def keys(*arguments: Any) -> Any:
        asked.append(arguments[1])
        return original(*arguments)

    long = make_request(
        list(range(400)),
        lora_request=LoRARequest("n", 1, "p"),
        mm_features=[make_image("i", 3, 10)],
        cache_salt="s",
    )
    expected = hashers("sha256", 4)[1](long)
    monkeypatch.setattr(utils, "generate_block_hash_extra_keys", keys)
    # Otherwise a replaced function would leave hashes to vLLM.
    monkeypatch.setattr(hashing, "takeover_reasons", list)
    ours, _ = hashers("sha256", 4)
    assert ours(long) == expected
    assert asked == [0, 4, 8, 12, 16]
    assert left_to_vllm == []


def test_the_function_keeps_its_name_and_signature() -> None:
    ours = utils.get_request_block_hasher
    assert (ours.__name__, ours.__module__) == ("get_request_block_hasher", utils.__name__)
    hashing.take_over(utils)
    assert utils.get_request_block_hasher is ours
    with pytest.raises(TypeError, match="caching_hash_fn"):
        ours(4)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_other_modes_leave_vllms(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    assert not is_ours(utils.get_request_block_hasher(4, functions.sha256))


def test_other_hash_functions_are_left_to_vllm() -> None:
    for other in (lambda value: b"", functions.safe_hash, hash):
        assert not is_ours(utils.get_request_block_hasher(4, other))


def test_a_function_that_hashes_otherwise_is_left_to_vllm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(functions.pickle, "HIGHEST_PROTOCOL", 4)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    caplog.set_level(logging.INFO, logger="vllm")
    assert not is_ours(utils.get_request_block_hasher(4, functions.sha256))
    assert "kvoxide: using vLLM's sha256 block hashing" in caplog.text
    assert is_ours(utils.get_request_block_hasher(4, functions.sha256_cbor))


def test_without_xxhash_vllm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_xxhash", None)
    hasher = utils.get_request_block_hasher(4, functions.xxhash)
    with pytest.raises(ModuleNotFoundError, match="xxhash"):
        hasher(make_request([1, 2, 3, 4]))


def test_another_plugins_function_stays() -> None:
    def other(*arguments: Any) -> None:
        pass

    module: Any = SimpleNamespace(get_request_block_hasher=other)
    hashing.take_over(module)
    hashing.take_over_engine(module)
    assert module.get_request_block_hasher is other


def test_other_views_of_the_tokens_are_left_to_vllm() -> None:
    ours, stock = hashers("sha256", 4)
    plain = make_request(list(range(10)))
    plain.all_token_ids = list(range(10))
    assert ours(plain) == stock(plain)
    assert len(ours(plain)) == 2


def test_long_prompts_are_hashed_without_the_gil() -> None:
    ours, stock = hashers("sha256", 16)
    long = make_request(list(range(1_000_000)))
    assert any(others_run_during(ours, long) for _ in range(10))
    assert not others_run_during(stock, make_request(list(range(100_000))))


def others_run_during(hasher: Hasher, hashed: Any) -> bool:
    """Return whether this thread gets the GIL while another thread hashes. That thread must release
    it."""
    finished = False

    def hash_all() -> None:
        nonlocal finished
        hasher(hashed)
        finished = True

    worker = threading.Thread(target=hash_all)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        worker.start()
        return not finished
    finally:
        sys.setswitchinterval(interval)
        worker.join()
