"""The table of releases against the vLLM that is installed."""

import dataclasses
import inspect

import pytest
from kvoxide import _core
from kvoxide.vllm.environment import releases
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
        _core.KVCacheGroupSpec("hisparse", 16)  # type: ignore[arg-type]
