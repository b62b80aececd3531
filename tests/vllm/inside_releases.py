"""The table of releases against the vLLM that is installed."""

import inspect

import pytest
from kvoxide import _core
from kvoxide.vllm.adapter import support
from kvoxide.vllm.environment import NATIVE_KINDS, releases
from kvoxide.vllm.environment.surface import format_surface, installed_surface, parse_surface

release = releases.current()


def test_release_is_known_and_unchanged() -> None:
    assert release is not None
    assert releases.drift(release) == ()


def test_the_other_release_has_drifted() -> None:
    (other,) = (r for r in releases.RELEASES.values() if r is not release)
    drift = releases.drift(other)
    assert any("KVCacheManager.get_computed_blocks: expected" in line for line in drift)
    assert all(": expected " in line and ", found " in line for line in drift)


def test_surface_survives_being_written() -> None:
    surface = installed_surface()
    assert parse_surface(format_surface(surface)) == surface
    missing = [name for name, found in surface.items() if found == "missing"]
    assert release is not None
    lookahead = "v1.core.kv_cache_utils:generate_lookahead_block_hash_extra_keys"
    assert missing == ([] if release.has_hash_lookahead else [lookahead])


def test_table_matches_vllms_code() -> None:
    """Each difference is where the code of the release says it is."""
    from vllm.v1.core import kv_cache_coordinator, single_type_kv_cache_manager
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    assert release is not None
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


def test_native_kinds_are_those_of_the_adapter() -> None:
    assert {native[0] for native in support.NATIVE_SPECS.values()} == set(NATIVE_KINDS)
    for kind in NATIVE_KINDS:
        window = 64 if kind.startswith("sliding_window") else None
        chunk = 64 if kind == "chunked_local_attention" else None
        _core.KVCacheGroupSpec(kind, 16, sliding_window=window, attention_chunk_size=chunk)
    with pytest.raises(_core.UnsupportedGroupError):
        _core.KVCacheGroupSpec("mamba", 16)  # type: ignore[arg-type]
