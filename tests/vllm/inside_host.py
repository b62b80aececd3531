"""Tests which manager vLLM's offloading connector gets for the host tier."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kvoxide import PoisonedError, __version__
from kvoxide.vllm.environment import recognise_host, recognition, sources
from kvoxide.vllm.offload import native_class
from kvoxide.vllm.offload.safe_tier import SafeTier
from kvoxide.vllm.plugin import UnsupportedError
from kvoxide.vllm.plugin import entry_point as plugin
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu import manager as stock
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory

Stock = stock.CPUOffloadingManager


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVOXIDE_HOST", raising=False)
    plugin.register()


def keys(*numbers: int) -> list[bytes]:
    return [make_offload_key(bytes([number]) * 32, 0) for number in numbers]


def test_kvoxides_manager_is_given_by_install_alone(lines: list[str]) -> None:
    manager = Stock(8, "arc", store_threshold=2)
    assert type(manager) is native_class()
    assert isinstance(manager, Stock)
    (line,) = lines
    assert line == (
        f"kvoxide: active for the CPU offload cache, version {__version__}: 8 chunks; policy arc; "
        "a chunk is stored after 2 offers"
    )


def test_the_installed_code_is_that_of_a_known_release() -> None:
    assert recognise_host().differences == ()


@pytest.mark.parametrize(("variable", "value"), [("KVOXIDE_HOST", "off"), ("KVOXIDE", "off")])
def test_off_at_construction_is_stock(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert type(Stock(8)) is Stock
    assert lines == []


def test_a_shadow_of_the_manager_leaves_the_host_tier(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    monkeypatch.setenv("KVOXIDE_HOST", "auto")
    assert type(Stock(8)) is Stock
    (line,) = lines
    assert "vLLM's own manager is used. Reason: KVOXIDE=shadow uses vLLM's own code." in line


def test_another_connector_is_vllms_and_named(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    from vllm.v1.simple_kv_offload import manager

    def made() -> Any:
        return manager.SimpleCPUOffloadScheduler.__new__(manager.SimpleCPUOffloadScheduler)

    assert isinstance(made(), manager.SimpleCPUOffloadScheduler)
    (line,) = lines
    assert "vLLM's own SimpleCPUOffloadConnector is used. Reason: kvoxide supports" in line
    monkeypatch.setenv("KVOXIDE_HOST", "require")
    with pytest.raises(UnsupportedError, match="supports OffloadingConnector alone"):
        made()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"num_chunks": 2**31 + 1}, "num_chunks is 2147483649"),
        ({"num_chunks": True}, "num_chunks is True"),
        ({"store_threshold": -1}, "store_threshold is -1"),
    ],
)
def test_what_is_unsupported_is_vllms(
    arguments: dict[str, Any], reason: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(Stock(**{"num_chunks": 8, **arguments})) is Stock
    (line,) = lines
    assert reason in line
    monkeypatch.setenv("KVOXIDE_HOST", "require")
    with pytest.raises(UnsupportedError, match=reason):
        Stock(**{"num_chunks": 8, **arguments})


def test_another_policy_of_a_known_name_is_vllms(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    class OwnPolicy(ARCCachePolicy):  # type: ignore[misc]
        pass

    monkeypatch.setitem(CachePolicyFactory._registry, "lru", lambda: OwnPolicy)
    assert type(Stock(8)) is Stock
    assert "OwnPolicy, not vLLM's own" in lines[0]


def test_code_of_another_plugin_is_vllms(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    monkeypatch.setattr(ARCCachePolicy, "touch", lambda self, keys, req_context: None)
    assert type(Stock(8)) is Stock
    assert "another plugin changed vLLM's code: " in lines[0]
    assert "ARCCachePolicy.touch is replaced" in lines[0]


def test_changed_code_is_named(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    read = sources.read_source

    def read_source(origin: str) -> bytes | None:
        source = read(origin)
        is_policy = source is not None and origin.endswith("policies/lru.py")
        return source.replace(b"+= 1", b"+= 2") if is_policy and source else source

    recognition._code_at.cache_clear()
    monkeypatch.setattr(recognition, "read_source", read_source)
    assert type(Stock(8)) is Stock
    recognition._code_at.cache_clear()
    assert "v1/kv_offload/cpu/policies/lru.py: LRUCachePolicy." in lines[0]


def test_derived_classes_are_left_alone() -> None:
    class Derived(Stock):  # type: ignore[misc, valid-type]
        pass

    assert type(Derived(8)) is Derived
    assert type(Derived(8)._policy).__module__.startswith("vllm.")


def test_wrong_arguments_and_policies_are_vllms_errors() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'num_chunks'"):
        Stock()
    with pytest.raises(ValueError, match="Unknown cache policy: 'fifo'"):
        Stock(8, "fifo")


def test_what_vllm_asserts_is_an_assertion_here_that_changes_nothing() -> None:
    manager, context = Stock(8), ReqContext("a")
    with pytest.raises(AssertionError, match="has no ready chunk"):
        manager.prepare_load(keys(1), context)
    with pytest.raises(AssertionError, match="has no load to complete"):
        manager.complete_load(keys(1), context)
    manager.on_request_finished(context)
    with pytest.raises(AssertionError, match="the request has ended"):
        manager.prepare_store(keys(1), context)
    assert manager.tier.get_chunks() == {}


def test_views_show_what_is_inside() -> None:
    manager, context = Stock(2, "arc", store_threshold=2), ReqContext("a")
    for _ in range(2):
        manager.prepare_store(keys(1), context)
    assert (manager.stores_skipped_in_current_batch, manager._num_write_pending_chunks) == (1, 1)
    assert manager.allocation_sizes_in_current_batch == [1]
    assert manager.counts == {keys(1)[0]: 2}
    policy = manager._policy
    assert isinstance(policy, ARCCachePolicy)
    assert (policy.get(keys(1)[0]).chunk_id, policy.t1[keys(1)[0]].ref_cnt) == (0, -1)
    assert (list(policy.t2), list(policy.b1), policy.target_t1_size) == ([], [], 0.0)
    assert not hasattr(policy, "chunks")
    manager.get_stats()
    assert (manager.stores_skipped_in_current_batch, manager.allocation_sizes_in_current_batch) == (
        0,
        [],
    )
    assert isinstance(manager, native_class())


CHANGES: dict[str, Callable[[Any], Any]] = {
    "_policy.evict() is called": lambda manager: manager._policy.evict(1, set()),
    "_policy.target_t1_size is set": lambda manager: setattr(manager._policy, "target_t1_size", 1),
    "_allocate_chunks is set": lambda manager: setattr(manager, "_allocate_chunks", None),
    "store_threshold is set": lambda manager: setattr(manager, "store_threshold", 3),
    "_free_list is read": lambda manager: manager._free_list,
}


@pytest.mark.parametrize("why", CHANGES)
@pytest.mark.parametrize("cache_policy", ["lru", "arc"])
def test_who_changes_what_is_inside_has_vllms_own_manager(
    why: str, cache_policy: str, lines: list[str]
) -> None:
    manager, context = Stock(2, cache_policy), ReqContext("a")
    policy, (key,) = manager._policy, keys(1)
    manager.prepare_store([key], context)
    chunk = policy.get(key)
    CHANGES[why](manager)
    assert not isinstance(manager, native_class())
    assert manager._policy is policy
    assert type(policy).__module__ == f"vllm.v1.kv_offload.cpu.policies.{cache_policy}"
    assert policy.get(key) is chunk
    assert manager._num_write_pending_chunks == 1
    (line,) = lines[1:]
    assert line.startswith(
        "kvoxide: switched the CPU offload cache to vLLM's own code, in the same"
    )
    assert f"does not support: {why}. Set KVOXIDE_HOST=off" in line


def test_who_reads_what_only_vllm_keeps_has_it() -> None:
    assert Stock(2)._policy._heap == []


def test_a_tier_that_a_connector_reads_refuses_changes() -> None:
    manager = Stock(2)
    manager.serve_connector(lambda *_: None)
    for why, change in CHANGES.items():
        with pytest.raises(AttributeError, match=rf"code: {re.escape(why)}\. Set KVOXIDE_HOST=off"):
            change(manager)
    assert isinstance(manager, native_class())


def test_a_module_without_the_class_is_left_alone() -> None:
    from kvoxide.vllm.plugin import host

    module: Any = SimpleNamespace()
    for replaced_class in host.REPLACED_CLASSES:
        replaced_class.take_over(module)
    assert vars(module) == {}


class BrokenTier:
    """A tier whose methods all raise."""

    num_chunks = 8

    def __init__(self) -> None:
        self.num_calls = 0

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any) -> None:
            self.num_calls += 1
            raise PoisonedError("the tier is poisoned")

        if name.startswith("num_"):
            fail()
        return fail


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda m, context: m.lookup(keys(1)[0], context), LookupResult.MISS),
        (lambda m, context: m.prepare_store(keys(1), context), None),
        (lambda m, context: m.complete_store(keys(1), context), None),
        (lambda m, context: m.complete_load(keys(1), context), None),
        (lambda m, context: m.tier.lookup_prefix(keys(1)), 0),
        (lambda m, context: m.tier.lookup_window(keys(1), 1, 1), 0),
        (lambda m, context: list(m.take_events()), []),
        (lambda m, context: m._get_num_free_chunks(), 8),
        (lambda m, context: m.on_request_finished(context), None),
    ],
)
def test_after_a_fault_nothing_is_hit_and_nothing_is_stored(
    call: Any, answer: Any, lines: list[str]
) -> None:
    manager: Any = Stock(8)
    context = ReqContext(req_id="a")
    manager.on_new_request(context)
    broken = BrokenTier()
    manager.tier = SafeTier(broken)  # type: ignore[arg-type]
    assert call(manager, context) == answer
    assert broken.num_calls == 1
    for method in (call, lambda m, context: m.touch(keys(1), context)):
        method(manager, context)
    assert manager.lookup(keys(1)[0], context) is LookupResult.MISS
    assert manager.prepare_store(keys(1), context) is None
    manager.get_stats()
    (fault,) = [line for line in lines if "disabled until restart" in line]
    assert "the tier is poisoned" in fault


def test_a_load_from_a_tier_that_failed_is_an_error() -> None:
    manager: Any = Stock(8)
    manager.tier = SafeTier(BrokenTier())  # type: ignore[arg-type]
    with pytest.raises(PoisonedError):
        manager.prepare_load(keys(1), ReqContext(req_id="a"))
