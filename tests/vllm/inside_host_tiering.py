"""Tests which primary tier vLLM's ``TieringOffloadingSpec`` gets, and that it serves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kvoxide import PoisonedError, __version__
from kvoxide.vllm.environment import recognise_primary_tier, recognition, sources
from kvoxide.vllm.metrics.host_tier import is_active
from kvoxide.vllm.offload import connector_class, native_class, primary_class
from kvoxide.vllm.offload.primary import SwitchedPrimaryManager
from kvoxide.vllm.offload.safe_tier import SafeTier
from kvoxide.vllm.plugin import UnsupportedError
from kvoxide.vllm.plugin import entry_point as plugin
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.tiering import spec
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager as Stock
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

from tests.proof.connector import together
from tests.proof.connector.memory import Prefixes
from tests.proof.connector.traffic import Traffic
from tests.proof.connector.world import ServersWorld
from tests.proof.sameness.tiering.tiers import Region

_TIERING = replace(
    together.draw(0),
    extra={"eviction_policy": "lru", "spec_name": "TieringOffloadingSpec", "secondary_tiers": []},
    has_events=False,
)


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVOXIDE_HOST", raising=False)
    # vLLM's memory has a file.
    monkeypatch.setattr(spec, "SharedOffloadRegion", lambda num_chunks, **_: Region(num_chunks))
    plugin.register()


def keys(*numbers: int) -> list[bytes]:
    return [make_offload_key(bytes([number]) * 32, 0) for number in numbers]


def made(num_chunks: int = 8, *args: Any, **kwargs: Any) -> Any:
    return Stock(num_chunks, Region(num_chunks), *args, **kwargs)


def store(manager: Any, context: Any, *numbers: int) -> None:
    assert manager.prepare_write(keys(*numbers), context) is not None
    manager.complete_write(keys(*numbers), context)


def test_the_primary_tier_is_kvoxides(lines: list[str]) -> None:
    manager = made(8, "arc")
    assert type(manager) is primary_class()
    assert isinstance(manager, Stock)
    assert isinstance(manager, native_class())
    (line,) = lines
    assert line == (
        f"kvoxide: active for the CPU offload cache, version {__version__}: 8 chunks; policy arc; "
        "it is the primary tier of TieringOffloadingManager"
    )


def test_the_installed_code_is_that_of_a_known_release() -> None:
    assert recognise_primary_tier().differences == ()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("KVOXIDE_HOST", "off"), ("KVOXIDE", "off"), ("KVOXIDE_HOST", "shadow")],
)
def test_off_and_shadow_are_vllms(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert type(made()) is Stock
    assert lines == []


def test_a_custom_policy_is_vllms(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    name, module = "ARCCachePolicy", ARCCachePolicy.__module__
    custom = {"cache_policy": name, "cache_policy_module_path": module}
    assert type(made(8, **custom)) is Stock
    (line,) = lines
    assert "vLLM's own manager is used. Reason: cache policy 'ARCCachePolicy' is not" in line
    monkeypatch.setenv("KVOXIDE_HOST", "require")
    with pytest.raises(UnsupportedError, match="cannot provide the CPU offload cache: cache"):
        made(8, **custom)


def test_code_of_another_plugin_is_vllms_for_tiering_alone(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setattr(Stock, "prepare_read", lambda self, keys, req_context: None)
    assert type(made()) is Stock
    assert "CPUPrimaryTierOffloadingManager.prepare_read is replaced" in lines[0]
    assert type(CPUOffloadingManager(8)) is native_class()


def test_changed_code_is_named(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    read = sources.read_source

    def read_source(origin: str) -> bytes | None:
        source = read(origin)
        is_tiering = source is not None and origin.endswith("tiering/manager.py")
        return source.replace(b"access=False", b"access=True") if is_tiering and source else source

    recognition._code_at.cache_clear()
    monkeypatch.setattr(recognition, "read_source", read_source)
    assert type(made()) is Stock
    recognition._code_at.cache_clear()
    assert "CPUPrimaryTierOffloadingManager.prepare_read has changed" in lines[0]


def test_derived_classes_are_left_alone() -> None:
    class Derived(Stock):  # type: ignore[misc]
        pass

    manager = Derived(8, Region(8))
    assert type(manager) is Derived
    assert type(manager._policy).__module__.startswith("vllm.")


def test_wrong_arguments_are_vllms_errors() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'mmap_region'"):
        Stock(8)
    with pytest.raises(ValueError, match="Unknown cache policy: 'fifo'"):
        made(8, "fifo")


def test_a_read_is_no_use_of_its_keys() -> None:
    manager, context = made(8, "arc"), ReqContext("a")
    store(manager, context, 1, 2)
    manager.on_request_finished(context)
    assert list(manager.prepare_read(keys(1, 2), context).chunk_ids) == [0, 1]
    assert manager._num_evictable_cache_chunks == 0
    manager.complete_read(keys(1, 2), context)
    assert manager._num_evictable_cache_chunks == 2
    assert (list(manager._policy.t1), list(manager._policy.t2)) == (keys(2, 1), [])
    assert manager.tier.num_transferred_chunks == (2, 0, 0)


def test_what_vllm_asserts_is_an_assertion_here_that_changes_nothing() -> None:
    manager, context = made(), ReqContext("a")
    store(manager, context, 1)
    with pytest.raises(AssertionError, match="has no ready chunk"):
        manager.prepare_read(keys(1, 2), context)
    with pytest.raises(AssertionError, match="has no load to complete"):
        manager.complete_read(keys(1), context)
    assert manager.tier.get_chunks() == {keys(1)[0]: (0, 0)}


@pytest.mark.parametrize("length", [0, 4, 8, 12, 20, 35, 36, 37, 64])
def test_other_servers_may_look_up_bytes_of_any_length(length: int) -> None:
    manager, context = made(), ReqContext("a")
    store(manager, context, 1)
    assert manager.lookup(bytes(length), context) is LookupResult.MISS


def test_a_key_of_another_tier_that_is_no_hash_is_stored_by_vllms_own_manager(
    lines: list[str],
) -> None:
    manager, context = made(2), ReqContext("a")
    store(manager, context, 1)
    output = manager.prepare_write([b"no hash"], context)
    assert (output.keys_to_store, list(output.store_spec.chunk_ids)) == ([b"no hash"], [1])
    assert type(manager) is SwitchedPrimaryManager
    assert manager.lookup(keys(1)[0], context) is LookupResult.HIT
    assert "another tier has a key that is no block hash with a group." in lines[1]


def test_a_chunk_of_the_policy_shows_its_loads() -> None:
    manager, context = made(), ReqContext("a")
    store(manager, context, 1)
    chunk = manager._policy.get(keys(1)[0])
    manager.prepare_read(keys(1), context)
    assert chunk.ref_cnt == 1
    manager.complete_read(keys(1), context)
    assert (chunk.ref_cnt, chunk.is_ready) == (0, True)
    chunk.ref_cnt = 1
    assert type(manager) is SwitchedPrimaryManager
    manager.complete_read(keys(1), context)
    assert chunk.ref_cnt == 0


def test_shutdown_releases_the_memory() -> None:
    manager = made()
    view, region = manager.get_kv_memoryview(), manager._mmap_region
    assert view.shape == (8, 8)
    manager.shutdown()
    assert region.is_cleaned_up
    with pytest.raises(ValueError, match="released"):
        view.tobytes()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "_policy.evict() is called": lambda manager: manager._policy.evict(1, set()),
    "prepare_write is set": lambda manager: setattr(manager, "prepare_write", None),
    "_free_list is read": lambda manager: manager._free_list,
}


@pytest.mark.parametrize("why", CHANGES)
def test_who_changes_what_is_inside_has_vllms_own_manager(why: str, lines: list[str]) -> None:
    manager, context = made(2), ReqContext("a")
    view, region = manager.get_kv_memoryview(), manager._mmap_region
    manager.prepare_write(keys(1), context)
    CHANGES[why](manager)
    assert type(manager) is SwitchedPrimaryManager
    assert manager.get_kv_memoryview() is view
    assert manager._mmap_region is region
    manager.complete_write(keys(1), context)
    assert list(manager.prepare_read(keys(1), context).chunk_ids) == [0]
    manager.complete_read(keys(1), context)
    assert manager.lookup(keys(1)[0], context) is LookupResult.HIT
    manager.shutdown()
    assert region.is_cleaned_up
    (line,) = lines[1:]
    assert line.startswith("kvoxide: switched the CPU offload cache to vLLM's own code")
    assert f"does not support: {why}." in line


def test_after_a_fault_nothing_is_promoted_and_a_copy_to_another_tier_raises(
    lines: list[str],
) -> None:
    manager, context = made(), ReqContext("a")
    store(manager, context, 1)
    assert type(manager.tier) is SafeTier
    tier: Any = manager.tier.unguarded
    with pytest.raises(PoisonedError):
        tier._panic_for_tests()
    assert manager.lookup(keys(1)[0], context) is LookupResult.MISS
    assert manager.prepare_write(keys(2), context) is None
    manager.complete_read(keys(1), context)
    manager.complete_write(keys(1), context)
    with pytest.raises(PoisonedError):
        manager.prepare_read(keys(1), context)
    assert len([line for line in lines if "disabled until restart" in line]) == 1


def test_a_server_with_other_tiers_reads_the_right_content(lines: list[str]) -> None:
    world = ServersWorld(_TIERING, Prefixes())
    (connector,) = world.connectors
    manager = connector.manager
    assert type(connector) is connector_class()
    assert type(manager) is TieringOffloadingManager
    assert type(manager.primary_tier) is primary_class()
    assert (
        f"kvoxide: active for the offloading connector, version {__version__}: it uses "
        "TieringOffloadingManager"
    ) in lines
    traffic = Traffic(_TIERING)
    for _ in range(120):
        for happens in traffic.draw(world):
            happens(world)
        world.counts.update(world.step().counts())
    assert world.counts["stores"]
    assert sum(rank.memory.num_checked for rank in world.ranks)
    assert is_active(world.scheduler.connector)
    manager.shutdown()


def test_gpu_and_cpu_memory_do_not_decide_together(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_HOST_POLICY", "adaptive")
    world = ServersWorld(_TIERING, Prefixes())
    (line,) = [line for line in lines if "HOST_POLICY" in line]
    assert line == (
        "kvoxide: KVOXIDE_HOST_POLICY=adaptive has no effect. CPU memory keeps the policy of "
        "vLLM's configuration. Reason: CPU memory is managed by TieringOffloadingManager, which "
        "kvoxide is not."
    )
    manager = world.connectors[0].manager
    assert manager.primary_tier.tier.policy == "lru"
    manager.shutdown()
    monkeypatch.setenv("KVOXIDE_HOST", "require")
    # The server is refused before vLLM has memory, whose file would stay.
    monkeypatch.setattr(spec, "SharedOffloadRegion", None)
    with pytest.raises(
        UnsupportedError,
        match=r"adaptive: TieringOffloadingSpec manages CPU memory\. KVOXIDE_HOST=require forbids",
    ):
        ServersWorld(_TIERING, Prefixes())
