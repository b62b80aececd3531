"""Measures how fast vLLM's requests are hashed, compared with vLLM's own hasher in the same
process: ``python -m pytest benches/test_hashing_speed.py --benchmark-only``. It needs vLLM.

The hashers take turns. A ratio compares their shortest times.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

utils = pytest.importorskip("vllm.v1.core.kv_cache_utils")

from kvoxide.vllm.plugin import hashing  # noqa: E402
from vllm.lora.request import LoRARequest  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils import hashing as functions  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

hashing.take_over(utils)
MILLION = 1_000_000
VOCABULARY = 128_256

Hasher = Callable[[Any], list[bytes]]


def hashers(algorithm: str, block_size: int) -> tuple[Hasher, Hasher]:
    """Return the engine's hasher and vLLM's own."""
    function = getattr(functions, algorithm)
    utils.init_none_hash(function)
    ours = utils.get_request_block_hasher(block_size, function)
    assert ours.__module__ == hashing.__name__
    return ours, utils.get_request_block_hasher.__wrapped__(block_size, function)


def request(num_tokens: int, **options: Any) -> Any:
    rng = random.Random(num_tokens)
    tokens = [rng.randrange(VOCABULARY) for _ in range(num_tokens)]
    return Request("r", tokens, SamplingParams(max_tokens=1), None, **options)


def compare(
    benchmark: BenchmarkFixture,
    algorithm: str,
    block_size: int,
    hashed: Any,
    calls: int,
    rounds: int,
) -> float:
    """Return vLLM's time to hash a request divided by kvoxide's, and put it into the report."""
    ours, stock = hashers(algorithm, block_size)
    assert ours(hashed) == stock(hashed)

    def seconds(hasher: Hasher) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            hasher(hashed)
        return time.perf_counter() - start

    pairs = [(seconds(ours), seconds(stock)) for _ in range(rounds)]
    ratio = min(theirs for _, theirs in pairs) / min(own for own, _ in pairs)
    benchmark.extra_info["vllm_over_kvoxide"] = round(ratio, 2)
    benchmark.pedantic(seconds, (ours,), rounds=3)
    return ratio


@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("algorithm", hashing.ALGORITHMS)
def test_million_token_prompt(benchmark: BenchmarkFixture, algorithm: str, block_size: int) -> None:
    """Goal: 6 times as fast."""
    ratio = compare(benchmark, algorithm, block_size, request(MILLION), calls=1, rounds=8)
    assert ratio > 5


@pytest.mark.parametrize("algorithm", hashing.ALGORITHMS)
def test_million_token_prompt_with_an_adapter(benchmark: BenchmarkFixture, algorithm: str) -> None:
    """Goal: 6 times as fast."""
    hashed = request(MILLION, lora_request=LoRARequest("adapter", 1, "/adapters/adapter"))
    assert compare(benchmark, algorithm, 16, hashed, calls=1, rounds=8) > 5


@pytest.mark.parametrize("num_tokens", [16, 64, 512])
@pytest.mark.parametrize("algorithm", hashing.ALGORITHMS)
def test_short_prompt(benchmark: BenchmarkFixture, algorithm: str, num_tokens: int) -> None:
    """Goal: never slower; the shortest is one new block."""
    ratio = compare(benchmark, algorithm, 16, request(num_tokens), calls=1_000, rounds=20)
    assert ratio > 1.5


@pytest.mark.parametrize("keys", ["salt", "adapter"])
def test_one_block_with_extra_keys(benchmark: BenchmarkFixture, keys: str) -> None:
    """Goal: never slower."""
    adapter = LoRARequest("adapter", 1, "/adapters/adapter")
    options: Any = {"cache_salt": "tenant"} if keys == "salt" else {"lora_request": adapter}
    hashed = request(16, **options)
    assert compare(benchmark, "sha256", 16, hashed, calls=1_000, rounds=20) > 1


def test_decode_step_without_a_new_block(benchmark: BenchmarkFixture) -> None:
    """Goal: not slower. Both do the same few steps in Python, so the ratio is about 1."""
    hashed = request(1_015)
    hashed.block_hashes = [b"h" * 32] * 63
    assert compare(benchmark, "sha256", 16, hashed, calls=10_000, rounds=30) > 0.85


def test_decode_step_that_fills_a_block(benchmark: BenchmarkFixture) -> None:
    """Goal: never slower, however long the request is."""
    hashed = request(100_000)
    hashed.block_hashes = [b"h" * 32] * (100_000 // 16 - 1)
    assert compare(benchmark, "sha256", 16, hashed, calls=1_000, rounds=20) > 1.5
