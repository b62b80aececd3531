"""Tests that block hashes equal vLLM's, byte for byte."""

import hashlib
import pickle
from typing import Any

import numpy as np
import pytest
from kvoxide import BlockHasher, Request

from . import reference_hash

# Every width that CBOR has for a number, and the values next to each change of width.
TOKENS = [0, 1, 23, 24, 255, 256, 65_535, 65_536, 128_255, 2**31 - 1, 7, 7, 7, 7, 7, 7, 9]


def hashes_of(hasher: BlockHasher, **options: Any) -> list[bytes]:
    return Request("a", TOKENS, block_hasher=hasher, **options).block_hashes


@pytest.mark.parametrize("block_size", [1, 2, 4, 16, 17])
def test_sha256_cbor(block_size: int) -> None:
    hasher = BlockHasher(block_size)
    assert (hasher.block_size, hasher.algorithm) == (block_size, "sha256_cbor")
    expected = reference_hash.block_hashes(TOKENS, block_size)
    assert hasher.hash_tokens(TOKENS) == expected
    assert hashes_of(hasher) == expected


def test_placeholders_beside_token_ids() -> None:
    # Any 64-bit integer is hashed by its value. Some models mark positions with negative ones.
    tokens = [-1, -24, -25, -300, 2**32, 2**63 - 1, -(2**63), 5]
    expected = reference_hash.block_hashes(tokens, 4)
    assert BlockHasher(4).hash_tokens(tokens) == expected
    assert BlockHasher(4).hash_tokens(np.array(tokens)) == expected


def test_tokens_short_of_a_block_have_no_hash() -> None:
    assert BlockHasher(18).hash_tokens(TOKENS) == []
    assert BlockHasher(18).hash_tokens([]) == []


def test_long_blocks() -> None:
    tokens = list(range(70_000, 140_000))
    for block_size in (512, 70_000):  # the length of the token array in two bytes and in four
        expected = reference_hash.block_hashes(tokens, block_size)
        assert BlockHasher(block_size).hash_tokens(tokens) == expected


def test_the_seed_starts_the_chain() -> None:
    hasher = BlockHasher(4, seed="42")
    assert hasher.hash_tokens(TOKENS) == reference_hash.block_hashes(TOKENS, 4, seed="42")


def test_the_cache_salt_is_in_the_first_block() -> None:
    expected = reference_hash.block_hashes(TOKENS, 4, first_keys=[["cache_salt", "tenant-ä"]])
    assert hashes_of(BlockHasher(4), cache_salt="tenant-ä") == expected


def test_the_lora_adapter_is_in_every_block() -> None:
    expected = reference_hash.block_hashes(TOKENS, 4, every_keys=[["lora", "sql", "adapters/sql"]])
    assert hashes_of(BlockHasher(4), lora=("sql", "adapters/sql")) == expected


def test_the_lora_adapter_comes_before_the_salt() -> None:
    expected = reference_hash.block_hashes(
        TOKENS, 4, every_keys=[["lora", "sql", "p"]], first_keys=[["cache_salt", "s"]]
    )
    assert hashes_of(BlockHasher(4), lora=("sql", "p"), cache_salt="s") == expected


def test_an_empty_salt_is_no_salt() -> None:
    assert hashes_of(BlockHasher(4), cache_salt="") == hashes_of(BlockHasher(4))


def test_hashes_of_appended_tokens_continue_the_chain() -> None:
    request = Request("a", TOKENS[:6], block_hasher=BlockHasher(4), cache_salt="s")
    for token in TOKENS[6:9]:
        request.append_output_token_ids(token)
    request.append_output_token_ids(np.array(TOKENS[9:], dtype=np.int64))
    expected = reference_hash.block_hashes(TOKENS, 4, first_keys=[["cache_salt", "s"]])
    assert request.block_hashes == expected


# From vLLM: xxhash_cbor with NONE_HASH = xxhash_cbor("vllm-none-hash").
XXHASH_CBOR = [
    "ee711f1cfd1317787f157cb43042ac6b",
    "0e13b8607a14d054364587f716e49cf3",
    "1cea1505d6833c86da12c81d90208ec7",
    "d27418ce67cc5cc38ab89a4da03a1f56",
]


def test_xxhash_cbor() -> None:
    hasher = BlockHasher(4, "xxhash_cbor")
    assert hasher.algorithm == "xxhash_cbor"
    assert [block_hash.hex() for block_hash in hasher.hash_tokens(TOKENS)] == XXHASH_CBOR


def sha256(value: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 17])
@pytest.mark.parametrize("seed", ["", "vllm-none-hash", "s" * 300])
def test_sha256(block_size: int, seed: str) -> None:
    tokens = [*TOKENS, 2**31, 2**63 - 1, -1, -(2**63)]
    hasher = BlockHasher(block_size, "sha256", seed=seed)
    assert hasher.algorithm == "sha256"
    parent, expected = sha256(seed), []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = sha256((parent, tuple(tokens[start : start + block_size]), None))
        expected.append(parent)
    assert hasher.hash_tokens(tokens) == expected


def test_sha256_with_extra_keys() -> None:
    request = Request(
        "a",
        TOKENS[:9],
        block_hasher=BlockHasher(4, "sha256"),
        cache_salt="salt",
        lora=("sql", "adapters/sql"),
    )
    lora, salt = ("lora", "sql", "adapters/sql"), ("cache_salt", "salt")
    first = sha256((sha256("vllm-none-hash"), tuple(TOKENS[:4]), (lora, salt)))
    assert request.block_hashes == [first, sha256((first, tuple(TOKENS[4:8]), (lora,)))]


# From vLLM: xxhash with NONE_HASH = xxhash("vllm-none-hash").
XXHASH = [
    "dd766973adceead451d07f031671a858",
    "25f058f17f6d607557468d971dcc47bc",
    "0adc718ffd8fb1d4b946bf21a03e301d",
    "85ec4757984cb08743cf01b3035f4163",
]


def test_xxhash() -> None:
    hashes = BlockHasher(4, "xxhash").hash_tokens(TOKENS)
    assert [block_hash.hex() for block_hash in hashes] == XXHASH
