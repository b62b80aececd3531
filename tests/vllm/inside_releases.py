"""Compares the table of releases with the installed vLLM."""

import dataclasses
import inspect

import pytest
from kvoxide import _core
from kvoxide.vllm.environment import recognise, releases

release = recognise().release


def test_release_is_known_and_unchanged() -> None:
    assert release.version == releases.installed_version()
    assert recognise().is_known
    assert recognise().differences == ()


def test_table_matches_vllms_code() -> None:
    """Each difference is at the place that the table names for the release."""
    from vllm.v1.core import kv_cache_coordinator, single_type_kv_cache_manager
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    manager = single_type_kv_cache_manager.SingleTypeKVCacheManager
    coordinator = inspect.getsource(kv_cache_coordinator.KVCacheCoordinator)
    assert release.drops_flagged_groups == ("drop_eagle_group_ids" not in coordinator)
    popped = inspect.getsource(manager.pop_blocks_for_free)
    assert release.pops_null_heads == ("trim_null_head" not in popped)
    touch = inspect.getsource(BlockPool.touch)
    assert release.counts_null_references == ("continue" not in touch)
    hit = inspect.signature(KVCacheManager.get_computed_blocks).parameters
    assert release.limits_hit_length == ("max_cache_hit_length" in hit)
    made = inspect.signature(KVCacheManager).parameters
    assert release.has_hash_lookahead == ("num_hash_lookahead_tokens" in made)
    cached = inspect.getsource(manager.cache_blocks)
    assert release.keeps_block_below_junction == ("if self.use_eagle" in cached)
    common = hasattr(single_type_kv_cache_manager.MambaManager, "get_num_common_prefix_blocks")
    assert release.counts_common_prefixes == common


def test_the_engine_has_the_rules_of_the_release() -> None:
    """Each rule of an older release is a difference in vLLM's code."""
    from vllm.v1.core import kv_cache_coordinator, kv_cache_utils, single_type_kv_cache_manager

    assert set(release.older_rules) <= set(_core.older_rules())
    full = inspect.getsource(single_type_kv_cache_manager.FullAttentionManager)
    states = inspect.getsource(single_type_kv_cache_manager.MambaManager)
    hybrid = inspect.getsource(kv_cache_coordinator.HybridKVCacheCoordinator)
    has_proof_margin = hasattr(kv_cache_utils, "eagle_proof_margin")
    differs = {
        "caches_unreachable_ends": "num_prompt_tokens - 1" not in full,
        "places_checkpoints_by_hash": "self.cache_hit_alignment_tokens,\n" not in states,
        "caches_all_checkpoints": "is_retained_checkpoint" not in states,
        "renews_drafts_at_checkpoints": "if not blocks_allocated or checkpoint_block" in states,
        "caches_state_ends_inside_blocks": "if num_tokens % self.block_size == 0" in states,
        "bounds_proofs_by_hit": not has_proof_margin or "+ eagle_margin" not in hybrid,
    }
    assert {name for name, is_there in differs.items() if is_there} == set(release.older_rules)


def test_every_kind_is_vllms() -> None:
    from vllm.v1 import kv_cache_interface
    from vllm.v1.core import single_type_kv_cache_manager

    for kind in _core.group_kinds():
        spec = getattr(kv_cache_interface, kind.vllm_spec)
        fields = {field.name for field in dataclasses.fields(spec)}
        assert {*kind.required_sizes} <= fields
        assert all(hasattr(spec, size) or size in fields for size in kind.optional_sizes)
        assert hasattr(single_type_kv_cache_manager, kind.vllm_manager)
    with pytest.raises(_core.UnsupportedGroupError):
        _core.KVCacheGroupSpec("hisparse_resident", 16)  # type: ignore[arg-type]


def test_a_policy_without_arguments_is_what_a_server_does_by_default() -> None:
    """Compares the two values that vLLM's configuration and its pool decide."""
    from vllm.config import CacheConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.block_pool import BlockPool

    default = _core.Policy()
    interval = CacheConfig().prefix_cache_retention_interval
    assert interval == EngineArgs.prefix_cache_retention_interval
    assert default.retention_interval == interval
    assert (default.retention, default.pin_min_drop_size) == ("standard", None)
    pool = BlockPool(num_gpu_blocks=5, enable_caching=True, hash_block_size=16)
    uncached, cached = pool.get_new_blocks(2)
    cached._block_hash = b"hash"
    cached._block_hash_num_tokens = 16
    pool.free_blocks([cached, uncached])
    order = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    assert default.recycle_order == "uncached-first"
    assert (order[0], order[-1]) == (uncached.block_id, cached.block_id)
