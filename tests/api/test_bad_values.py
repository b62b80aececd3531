"""Bad values: an error of a documented class that names the value and what is allowed."""

from collections.abc import Callable
from typing import Any

import kvoxide
import numpy as np
import pytest
from kvoxide import (
    BlockError,
    BlockHasher,
    BlockHashError,
    ConfigError,
    DuplicateRequestError,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheManager,
    KvoxideError,
    Policy,
    Request,
    RequestError,
    UnknownRequestError,
    UnsupportedGroupError,
)

from .small import assert_names, chunked, full, make_manager, window

group: Any = KVCacheGroupSpec
policy: Any = Policy
hasher: Any = BlockHasher


def request(*args: Any, **options: Any) -> Request:
    return Request("a", *args, **options)


def retention(interval: Any, *groups: KVCacheGroupSpec) -> KVCacheManager:
    return make_manager(*groups, policy=policy(retention_interval=interval))


def test_the_classes_of_errors() -> None:
    for error in (ConfigError, RequestError, BlockHashError, BlockError, kvoxide.TraceError):
        assert issubclass(error, KvoxideError)
        assert issubclass(error, ValueError)
    assert issubclass(UnsupportedGroupError, ConfigError)
    assert issubclass(UnknownRequestError, RequestError)
    assert issubclass(UnknownRequestError, KeyError)
    assert issubclass(DuplicateRequestError, RequestError)
    assert issubclass(kvoxide.InternalError, KvoxideError)
    assert issubclass(kvoxide.InternalError, AssertionError)


# What is made, the error, and what its message must name: the value and what is allowed.
MADE_WRONG: dict[str, tuple[Callable[[], Any], type[KvoxideError], list[str]]] = {
    # groups
    "a kind of another engine": (
        lambda: group("mamba", 16),
        UnsupportedGroupError,
        ["mamba", "full_attention", "mla_attention", "sliding_window", "chunked_local_attention"],
    ),
    "no kind": (lambda: group("", 16), UnsupportedGroupError, ["''", "full_attention"]),
    "blocks of no tokens": (lambda: full(0), ConfigError, ["block_size", "0", "1"]),
    "blocks of fewer tokens": (lambda: full(-16), ConfigError, ["block_size", "-16"]),
    "a window of 0": (lambda: window(16, 0), ConfigError, ["sliding_window", "0", "1"]),
    "a window below 0": (lambda: window(16, -5), ConfigError, ["sliding_window", "-5"]),
    "a sliding window of no size": (
        lambda: group("sliding_window", 16),
        ConfigError,
        ["sliding_window"],
    ),
    "full attention with a window": (
        lambda: group("full_attention", 16, sliding_window=64),
        ConfigError,
        ["full_attention", "sliding_window"],
    ),
    "full attention with a chunk": (
        lambda: group("full_attention", 16, attention_chunk_size=64),
        ConfigError,
        ["full_attention", "attention_chunk_size"],
    ),
    "a chunk of no size": (
        lambda: group("chunked_local_attention", 16),
        ConfigError,
        ["attention_chunk_size"],
    ),
    "a chunk of 0": (lambda: chunked(16, 0), ConfigError, ["attention_chunk_size", "0", "1"]),
    "a chunk with a window": (
        lambda: group("chunked_local_attention", 16, attention_chunk_size=8, sliding_window=8),
        ConfigError,
        ["sliding_window"],
    ),
    "fewer than no extra tokens": (
        lambda: window(16, 64, extra_retained_tokens=-1),
        ConfigError,
        ["extra_retained_tokens", "-1"],
    ),
    "a layout below 0": (lambda: full(4, layout=-1), ConfigError, ["layout", "-1"]),
    # the pool
    "a pool of nothing": (lambda: make_manager(num_blocks=0), ConfigError, ["num_blocks", "0"]),
    "a pool below nothing": (
        lambda: make_manager(num_blocks=-1),
        ConfigError,
        ["num_blocks", "-1"],
    ),
    "a pool of the null block alone": (
        lambda: make_manager(num_blocks=1),
        ConfigError,
        ["num_blocks", "1", "2"],
    ),
    "a pool without a block for each group": (
        lambda: make_manager(full(4), window(4, 8), num_blocks=2),
        ConfigError,
        ["num_blocks", "2", "3"],
    ),
    "a pool beyond counting": (
        lambda: make_manager(num_blocks=2**40),
        ConfigError,
        ["num_blocks", "1099511627776"],
    ),
    "no groups": (lambda: KVCacheManager(KVCacheConfig(10, []), 100), ConfigError, ["group"]),
    # block sizes
    "scheduler blocks that do not divide": (
        lambda: make_manager(full(16), window(8, 8), scheduler_block_size=24),
        ConfigError,
        ["scheduler_block_size", "24", "16"],
    ),
    "hash blocks that do not divide": (
        lambda: make_manager(full(16), window(8, 8), hash_block_size=5),
        ConfigError,
        ["hash_block_size", "5"],
    ),
    "hash blocks larger than blocks": (
        lambda: make_manager(full(16), window(8, 8), hash_block_size=16),
        ConfigError,
        ["hash_block_size", "16", "8"],
    ),
    "hash blocks smaller than those of the only group": (
        lambda: make_manager(full(16), hash_block_size=8),
        ConfigError,
        ["hash_block_size", "8", "16"],
    ),
    "hash blocks of no tokens": (
        lambda: make_manager(full(16), hash_block_size=0),
        ConfigError,
        ["hash_block_size", "0"],
    ),
    "scheduler blocks of no tokens": (
        lambda: make_manager(full(16), scheduler_block_size=0),
        ConfigError,
        ["scheduler_block_size", "0"],
    ),
    "chunks among blocks of another size": (
        lambda: make_manager(full(16), chunked(8, 16)),
        ConfigError,
        ["chunked", "8", "16"],
    ),
    "chunks with EAGLE": (
        lambda: make_manager(full(8), chunked(8, 16), use_eagle=True),
        ConfigError,
        ["chunked", "EAGLE"],
    ),
    "more draft tokens than a block holds": (
        lambda: make_manager(full(4), use_eagle=True, num_prefill_lookahead=5),
        ConfigError,
        ["5", "4"],
    ),
    # other sizes
    "a model of no tokens": (
        lambda: make_manager(max_model_len=0),
        ConfigError,
        ["max_model_len", "0"],
    ),
    "a model of fewer tokens": (
        lambda: make_manager(max_model_len=-1),
        ConfigError,
        ["max_model_len", "-1"],
    ),
    "a watermark below 0": (
        lambda: make_manager(watermark=-0.5),
        ConfigError,
        ["watermark", "-0.5", "0"],
    ),
    "a watermark of the whole pool": (
        lambda: make_manager(watermark=1.0),
        ConfigError,
        ["watermark", "1"],
    ),
    "a watermark beyond counting": (
        lambda: make_manager(watermark=1e300),
        ConfigError,
        ["watermark"],
    ),
    "a watermark that is no number": (
        lambda: make_manager(watermark=float("nan")),
        ConfigError,
        ["watermark", "NaN"],
    ),
    # policies
    "an unknown recycle order": (
        lambda: policy(recycle_order="lifo"),
        ConfigError,
        ["lifo", "uncached-first", "fifo"],
    ),
    "an interval below 0": (
        lambda: retention(-16, full(16), window(16, 16)),
        ConfigError,
        ["retention_interval", "-16"],
    ),
    "an interval of scheduler blocks and a half": (
        lambda: retention(24, full(16), window(16, 16)),
        ConfigError,
        ["retention_interval", "24", "16"],
    ),
    "an interval without a window": (
        lambda: retention(64, full(16)),
        ConfigError,
        ["retention_interval", "64", "sliding"],
    ),
    "interval 0 without a window": (
        lambda: retention(0, full(16), chunked(16, 64)),
        ConfigError,
        ["retention_interval", "0", "sliding"],
    ),
    "auto where it does not divide": (
        lambda: retention("auto", full(12), window(12, 24)),
        ConfigError,
        ["retention_interval", "32768", "12"],
    ),
    "an interval of a word": (
        lambda: policy(retention_interval="weekly"),
        ConfigError,
        ["retention_interval", "weekly", "auto"],
    ),
    "pins from no drop at all": (
        lambda: make_manager(policy=policy(pin_min_drop_size=0)),
        ConfigError,
        ["pin_min_drop_size", "0", "1"],
    ),
    "pins below no drop": (
        lambda: make_manager(policy=policy(pin_min_drop_size=-1)),
        ConfigError,
        ["pin_min_drop_size", "-1", "1"],
    ),
    # hashers
    "hashes of no tokens": (lambda: hasher(0), ConfigError, ["block_size", "0"]),
    "an unknown algorithm": (
        lambda: hasher(16, "md5"),
        ConfigError,
        ["md5", "sha256", "sha256_cbor", "xxhash", "xxhash_cbor"],
    ),
    # tokens
    "tokens of a wrong dtype": (
        lambda: request(np.zeros(8), block_hasher=hasher(4)),
        RequestError,
        ["float64", "int32", "int64", "uint32"],
    ),
    "tokens of a narrow dtype": (
        lambda: request(np.zeros(8, dtype=np.int16), block_hasher=hasher(4)),
        RequestError,
        ["int16", "int32"],
    ),
    "tokens of truth": (
        lambda: request(np.zeros(8, dtype=np.bool_), block_hasher=hasher(4)),
        RequestError,
        ["bool", "int32"],
    ),
    "tokens in a table": (
        lambda: request(np.zeros((2, 4), dtype=np.int32), block_hasher=hasher(4)),
        RequestError,
        ["2", "1"],
    ),
    "a token without an array": (
        lambda: request(np.int32(5), block_hasher=hasher(4)),
        RequestError,
        ["int32"],
    ),
    "tokens of text": (
        lambda: request(["a", "b"], block_hasher=hasher(4)),
        RequestError,
        ["int"],
    ),
    "a text of tokens": (lambda: request("abc", block_hasher=hasher(4)), RequestError, ["int"]),
    "a token beyond 64 bits": (
        lambda: request([2**64], block_hasher=hasher(4)),
        RequestError,
        ["18446744073709551616"],
    ),
    "tokens of a wrong dtype to hash": (
        lambda: hasher(4).hash_tokens(np.zeros(8, dtype=np.float32)),
        RequestError,
        ["float32", "int32"],
    ),
    # combinations
    "a request of nothing": (request, RequestError, ["prompt_token_ids", "num_prompt_tokens"]),
    "tokens and hashes": (
        lambda: request([1, 2], block_hasher=hasher(4), block_hashes=[bytes(32)]),
        RequestError,
        ["prompt_token_ids", "block_hashes"],
    ),
    "hashes without a number of tokens": (
        lambda: request(block_hashes=[bytes(32)]),
        RequestError,
        ["num_prompt_tokens"],
    ),
    "hashes of fewer than no tokens": (
        lambda: request(block_hashes=[bytes(32)], num_prompt_tokens=-4),
        RequestError,
        ["num_prompt_tokens", "-4"],
    ),
    "an unknown report mode": (
        lambda: request([1], block_hasher=hasher(4), kv_cache_report_mode="all"),
        RequestError,
        ["all", "incremental", "full"],
    ),
    # hashes
    "hashes of unequal length": (
        lambda: request(block_hashes=[bytes(32), bytes(16)], num_prompt_tokens=8),
        BlockHashError,
        ["16", "32"],
    ),
    "hashes too long": (
        lambda: request(block_hashes=[bytes(33)], num_prompt_tokens=8),
        BlockHashError,
        ["33", "32"],
    ),
    "hashes too long in an array": (
        lambda: request(block_hashes=np.zeros((2, 40), dtype=np.uint8), num_prompt_tokens=8),
        BlockHashError,
        ["40", "32"],
    ),
    "empty hashes": (
        lambda: request(block_hashes=[b""], num_prompt_tokens=8),
        BlockHashError,
        ["0", "32"],
    ),
    "hashes of a wrong dtype": (
        lambda: request(block_hashes=np.zeros((2, 32), dtype=np.int64), num_prompt_tokens=8),
        RequestError,
        ["int64", "uint8"],
    ),
    "hashes in one row": (
        lambda: request(block_hashes=np.zeros(32, dtype=np.uint8), num_prompt_tokens=8),
        RequestError,
        ["1", "2"],
    ),
}


@pytest.mark.parametrize("case", MADE_WRONG)
def test_made_wrong(case: str) -> None:
    make, error, named = MADE_WRONG[case]
    with pytest.raises(error) as raised:
        make()
    assert_names(raised.value, named)
