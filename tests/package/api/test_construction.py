"""Tests of a manager's arguments and their defaults."""

import importlib.metadata
import subprocess
import sys

import kvoxide
from kvoxide import KVCacheConfig, KVCacheGroupSpec, KVCacheManager, Policy

from tests.testing.small import chunked, free_ids, full, make_manager, window


def test_a_group_reads_back_as_it_was_written() -> None:
    group = KVCacheGroupSpec(
        "sliding_window_mla",
        8,
        sliding_window=128,
        extra_retained_tokens=2,
        is_eagle_group=True,
        prefix_cacheable=False,
        layout=3,
    )
    assert (group.kind, group.block_size, group.sliding_window) == ("sliding_window_mla", 8, 128)
    assert (group.extra_retained_tokens, group.layout) == (2, 3)
    assert (group.is_eagle_group, group.prefix_cacheable) == (True, False)
    assert group.attention_chunk_size is None


def test_defaults_of_a_group() -> None:
    group = full(16)
    assert (group.kind, group.block_size) == ("full_attention", 16)
    assert (group.sliding_window, group.attention_chunk_size) == (None, None)
    assert (group.extra_retained_tokens, group.layout) == (0, 0)
    assert (group.is_eagle_group, group.prefix_cacheable) == (False, True)
    assert chunked(16, 64).attention_chunk_size == 64


def test_a_config_reads_back_as_it_was_written() -> None:
    config = KVCacheConfig(100, [full(16), window(8, 64)], needs_kv_cache_zeroing=True)
    assert config.num_blocks == 100
    assert [group.block_size for group in config.kv_cache_groups] == [16, 8]
    assert config.needs_kv_cache_zeroing
    assert not KVCacheConfig(100, [full(16)]).needs_kv_cache_zeroing


def test_defaults_of_a_policy() -> None:
    policy = Policy()
    assert policy.retention == "standard"
    assert policy.recycle_order == "uncached-first"
    assert policy.reachable_block_mask
    assert policy.retention_interval == 0
    assert policy.pin_min_drop_size is None


def test_named_values_of_a_policy() -> None:
    assert Policy(retention_interval="auto").retention_interval == 32_768
    assert kvoxide.DEFAULT_PIN_MIN_DROP_SIZE == 16


def test_adaptive_retention_has_the_defaults_beside_it() -> None:
    policy = Policy(retention="adaptive")
    assert (policy.retention, policy.recycle_order) == ("adaptive", "uncached-first")
    assert policy.reachable_block_mask
    assert (policy.retention_interval, policy.pin_min_drop_size) == (None, None)
    assert policy == Policy(retention="adaptive", retention_interval=None)
    manager = make_manager(full(16), window(16, 64), policy=policy)
    assert manager.policy.retention == "adaptive"


def test_policies_show_what_was_asked_for() -> None:
    assert repr(Policy(retention="adaptive")) == "Policy(retention='adaptive')"
    assert repr(Policy(retention="standard")) == repr(Policy())
    assert repr(Policy()).startswith("Policy(recycle_order='uncached-first', ")


def test_policies_with_equal_values_are_equal() -> None:
    assert Policy(retention="adaptive") == Policy(retention="adaptive")
    assert Policy(retention="adaptive") != Policy()
    assert Policy(retention="standard") == Policy()


def test_defaults_of_a_manager() -> None:
    manager = make_manager(full(32), window(8, 64), window(12, 64))
    assert manager.scheduler_block_size == 96  # least common multiple of 32, 8 and 12
    assert manager.hash_block_size == 4  # their greatest common divisor
    assert manager.num_kv_cache_groups == 3
    assert manager.enable_caching
    assert manager.watermark_blocks == 0
    assert manager.policy.recycle_order == "uncached-first"
    assert len(manager.empty_kv_cache_blocks) == 3


def test_groups_outside_the_cache_do_not_refine_the_hashes() -> None:
    scratch = KVCacheGroupSpec("sliding_window_mla", 4, sliding_window=8, prefix_cacheable=False)
    manager = make_manager(full(16), window(8, 16), scratch)
    assert (manager.scheduler_block_size, manager.hash_block_size) == (16, 8)


def test_given_values_of_a_manager() -> None:
    policy = Policy(recycle_order="fifo", pin_min_drop_size=4)
    manager = KVCacheManager(
        KVCacheConfig(101, [full(16), window(16, 64)]),
        4096,
        scheduler_block_size=32,
        hash_block_size=8,
        enable_caching=False,
        watermark=0.05,
        policy=policy,
    )
    assert (manager.max_model_len, manager.scheduler_block_size) == (4096, 32)
    assert (manager.hash_block_size, manager.enable_caching) == (8, False)
    assert manager.watermark_blocks == 5  # 0.05 * 101, rounded down
    assert manager.policy.recycle_order == "fifo"
    assert manager.policy.pin_min_drop_size == 4
    assert manager.kv_cache_config.num_blocks == 101


def test_a_fresh_pool_is_free_but_for_the_null_block() -> None:
    manager = make_manager(num_blocks=11)
    pool = manager.block_pool
    assert (pool.num_gpu_blocks, pool.get_num_free_blocks()) == (11, 10)
    assert (pool.get_num_cached_blocks(), pool.get_num_pinned_blocks()) == (0, 0)
    assert free_ids(manager) == list(range(1, 11))
    assert (pool.null_block.block_id, pool.null_block.is_null) == (0, True)
    assert manager.usage == 0.0
    manager.check_invariants()


def test_version_is_that_of_the_package() -> None:
    assert kvoxide.__version__ == importlib.metadata.version("kvoxide")


def test_every_public_name_is_there() -> None:
    assert [name for name in kvoxide.__all__ if not hasattr(kvoxide, name)] == []


def test_the_engine_for_vllm_comes_with_the_compiled_module() -> None:
    first = "from kvoxide._core_vllm import VllmManager"
    assert subprocess.run([sys.executable, "-c", first], check=False).returncode == 0
    without = f"import sys; sys.modules['kvoxide._core'] = None\n{first}"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, check=False)
    assert b"ModuleNotFoundError: No module named 'kvoxide._core_vllm'" in done.stderr
