"""Replaces methods and fields of living objects as other code does, once with vLLM's own manager
and once with kvoxide's, in a process where vLLM loaded its plugins."""

import gc
import json
import logging
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import Any
from unittest import mock

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.adapter.watched import stock_names  # noqa: E402
from kvoxide.vllm.environment import Settings, UnsupportedError, settings  # noqa: E402
from vllm.v1.core.block_pool import BlockPool  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager  # noqa: E402
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager  # noqa: E402

from tests.testing.small_world import (  # noqa: E402
    BLOCK_SIZE,
    config,
    full,
    make_manager,
    make_request,
    states,
    stock_manager,
    traffic,
    window,
)

ROW = 3 * BLOCK_SIZE
MODELS: dict[str, dict[str, Any]] = {
    "full": {"kv_cache_config": config(full()), "enable_kv_cache_events": True},
    "full and window": {"kv_cache_config": config(full(), window())},
    "full and states": {
        "kv_cache_config": config(full(), states()),
        "scheduler_block_size": ROW,
        "enable_kv_cache_events": True,
    },
}
PARTS: dict[str, Callable[[Any], Any]] = {
    "manager": lambda manager: manager,
    "coordinator": lambda manager: manager.coordinator,
    "pool": lambda manager: manager.block_pool,
    "queue": lambda manager: manager.block_pool.free_block_queue,
    "index": lambda manager: manager.block_pool.cached_block_hash_to_block,
    "first group": lambda manager: manager.coordinator.single_type_managers[0],
    "last group": lambda manager: manager.coordinator.single_type_managers[-1],
}
of_models = pytest.mark.parametrize("model", MODELS)
of_parts = pytest.mark.parametrize("part", PARTS)


def native_manager(*specs: Any, **arguments: Any) -> Any:
    manager = make_manager(*specs, **arguments)
    assert type(manager) is native_class()
    return manager


def is_native(manager: Any) -> bool:
    return isinstance(manager, native_class())


def both(model: str) -> Iterator[Any]:
    yield stock_manager(**MODELS[model])
    yield native_manager(**MODELS[model])


MANAGERS = pytest.mark.parametrize("make", [stock_manager, native_manager], ids=["vllm", "kvoxide"])


def methods_of(thing: Any) -> list[str]:
    """Return the methods of vLLM's class, in any release."""
    stock = getattr(type(thing), "_stock", type(thing))
    names = (name for name in dir(stock) if not name.startswith(("__", "_abc_")))
    return sorted(name for name in names if callable(getattr(stock, name)))


def wrap(thing: Any, name: str, calls: Counter[str]) -> None:
    real = getattr(thing, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return real(*args, **kwargs)

    setattr(thing, name, wrapper)


@of_models
@of_parts
def test_wrapped_methods_are_called_as_often_as_in_vllm(model: str, part: str) -> None:
    """The test wraps every method of vLLM's class, served or not, in the middle of the traffic."""
    counts, seen = [], []
    for manager in both(model):
        traffic(manager, 25, 1)
        thing = PARTS[part](manager)
        calls: Counter[str] = Counter()
        for name in methods_of(thing):
            wrap(thing, name, calls)
        seen.append(traffic(manager, 40, 2))
        counts.append(calls)
    assert counts[0] == counts[1]
    assert seen[0] == seen[1]
    assert part == "last group" or sum(counts[0].values()) > 0


@of_models
def test_methods_that_are_served_are_called_and_keep_the_engine(model: str) -> None:
    counts, seen = [], []
    native: Any = native_class()
    served: frozenset[str] = native._settable
    for manager in both(model):
        calls: Counter[str] = Counter()
        for name in methods_of(manager):
            if name in served:
                wrap(manager, name, calls)
        for name in ("evict_blocks", "reset_prefix_cache", "take_events", "unpin_blocks"):
            wrap(manager.block_pool, name, calls)
        seen.append(traffic(manager, 40, 2))
        manager.evict_blocks({1, 2})
        manager.reset_prefix_cache()
        counts.append(calls)
    assert is_native(manager)
    assert counts[0] == counts[1]
    assert seen[0] == seen[1]


@of_parts
def test_every_attribute_of_vllms_takes_effect_or_switches(part: str) -> None:
    """The test finds a new attribute of a new release. It must be served, or vLLM's own manager
    must take over."""
    stock = PARTS[part](stock_manager(**MODELS["full and states"]))
    native = PARTS[part](native_manager(**MODELS["full and states"]))
    names = {*vars(stock), *methods_of(stock)}
    assert {n for n in names if not n.startswith("__")} <= stock_names(type(native)._stock)
    properties = {n for n in dir(type(native)) if isinstance(getattr(type(native), n), property)}
    for name in sorted(names - properties):
        manager = native_manager(**MODELS["full and states"])
        thing = PARTS[part](manager)
        setattr(thing, name, getattr(stock, name))
        assert is_native(manager) == (name in type(native)._settable), name


@of_parts
def test_an_attribute_of_its_own_changes_nothing(part: str) -> None:
    manager = native_manager()
    PARTS[part](manager).my_own_counter = 3
    assert is_native(manager)
    manager.block_pool.touch = manager.block_pool.touch
    assert not is_native(manager)
    assert PARTS[part](manager).my_own_counter == 3


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("manager", "enable_caching", False),
        ("manager", "max_model_len", 100),
        ("manager", "watermark_blocks", 20),
        ("manager", "enable_kv_cache_events", False),
        ("pool", "num_gpu_blocks", 300),
        ("pool", "enable_caching", False),
        ("pool", "enable_kv_cache_events", False),
        ("pool", "hash_block_size", BLOCK_SIZE),
        ("coordinator", "num_reprefillable_tokens", 2),
        ("last group", "use_eagle", True),
        ("last group", "enable_caching", False),
    ],
)
def test_fields_take_effect(part: str, name: str, value: object) -> None:
    seen, usage = [], []
    for manager in both("full and window"):
        traffic(manager, 20, 1)
        setattr(PARTS[part](manager), name, value)
        try:
            seen.append(traffic(manager, 30, 2))
        except AssertionError as error:
            seen.append([str(error)])
        usage.append(manager.usage)
    assert (seen[0], usage[0]) == (seen[1], usage[1])


def rescuing(manager: Any, order: list[Any]) -> None:
    pool = manager.block_pool
    real = pool._maybe_evict_cached_block

    def rescue(block: Any) -> bool:
        before = (block.block_id, block.ref_cnt, block.block_hash, len(pool.kv_event_queue))
        evicted = real(block)
        order.append((*before, evicted, block.block_hash, len(pool.kv_event_queue)))
        return bool(evicted)

    pool._maybe_evict_cached_block = rescue


def test_a_connector_rescues_each_block_before_it_is_evicted() -> None:
    orders: list[list[Any]] = []
    for manager in both("full"):
        orders.append([])
        rescuing(manager, orders[-1])
        traffic(manager, 80, 4)
    assert orders[0] == orders[1]
    assert any(evicted and block_hash for _, _, block_hash, _, evicted, _, _ in orders[0])


def test_a_wrapper_may_refuse_and_raise() -> None:
    """One wrapper does not call the original, and one raises in the middle of a step."""
    seen = []
    for manager in both("full"):
        traffic(manager, 40, 4)
        manager.block_pool._maybe_evict_cached_block = lambda block: False
        request = make_request("veto", list(range(300)))
        outcome: list[Any] = []
        try:
            blocks = manager.allocate_slots(request, 300)
            outcome.append(blocks and blocks.get_block_ids())
        except AssertionError as error:
            outcome.append(type(error))
        calls: list[int] = []

        def fails(num_blocks: int, _calls: list[int] = calls) -> Any:
            _calls.append(num_blocks)
            raise KeyError("the wrapper fails")

        manager.block_pool.get_new_blocks = fails
        other = make_request("raises", list(range(500, 600)))
        with pytest.raises(KeyError, match="the wrapper fails"):
            manager.allocate_slots(other, 100)
        del manager.block_pool.get_new_blocks
        outcome += [calls, manager.block_pool.get_num_free_blocks(), manager.usage]
        seen.append(outcome)
    assert seen[0] == seen[1]


@of_parts
def test_require_refuses_and_nothing_changes(part: str) -> None:
    with settings.using(Settings(mode="require")):
        manager = native_manager(**MODELS["full and states"])
        thing = PARTS[part](manager)
        name = next(n for n in methods_of(thing) if n not in type(thing)._settable)
        before = manager.engine.state_digest()
        with pytest.raises(UnsupportedError, match=rf"{name} is set.*KVOXIDE=off"):
            setattr(thing, name, lambda *args: None)
        with pytest.raises(UnsupportedError, match="is deleted"):
            delattr(thing, name)
        assert is_native(manager)
        assert manager.engine.state_digest() == before
        assert traffic(manager, 20, 3)


def test_auto_warns_once_and_names_the_attribute(caplog: pytest.LogCaptureFixture) -> None:
    manager = native_manager()
    with caplog.at_level(logging.WARNING, "vllm.kvoxide"):
        manager.block_pool.touch = manager.block_pool.touch
        manager.block_pool.free_blocks = manager.block_pool.free_blocks
        manager.coordinator.free = manager.coordinator.free
    warnings = (record for record in caplog.records if record.levelno == logging.WARNING)
    messages = [record.getMessage() for record in warnings]
    assert len(messages) == 1
    assert "block_pool.touch is set" in messages[0]
    assert "KVOXIDE=off" in messages[0]


def test_a_method_that_is_set_on_vllms_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method is set after the manager was constructed, and before its next step."""
    counts, seen = [], []
    for manager in both("full and window"):
        traffic(manager, 20, 1)
        calls: Counter[str] = Counter()
        with monkeypatch.context() as patch:
            for cls, name in ((BlockPool, "touch"), (FullAttentionManager, "cache_blocks")):
                real = getattr(cls, name)

                def wrapper(self: Any, *args: Any, _real: Any = real, **kwargs: Any) -> Any:
                    if self.__class__ in (BlockPool, FullAttentionManager):
                        calls[_real.__name__] += 1  # noqa: B023
                    return _real(self, *args, **kwargs)

                patch.setattr(cls, name, wrapper)
            for _ in range(32):
                manager.new_step_starts()
            seen.append(traffic(manager, 30, 2))
        counts.append(calls)
    assert counts[0] == counts[1]
    assert counts[0]["touch"]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("part", [part for part in PARTS if part != "manager"])
def test_a_method_that_is_set_on_the_type_of_an_object_is_vllms(part: str) -> None:
    manager = native_manager()
    thing = PARTS[part](manager)
    stock, name = type(thing)._stock, methods_of(thing)[-1]
    real = vars(stock).get(name)
    try:
        setattr(type(thing), name, getattr(stock, name))
        assert not is_native(manager)
        assert type(PARTS[part](manager)) is stock
    finally:
        delattr(stock, name)
        if real is not None:
            setattr(stock, name, real)


def test_what_other_code_holds_stays_the_same_object() -> None:
    manager = native_manager(**MODELS["full and states"])
    pool, queue = manager.block_pool, manager.block_pool.free_block_queue
    request = make_request("held", list(range(200)))
    blocks, num_hit, _ = manager.get_computed_blocks(request)
    manager.allocate_slots(request, 2 * ROW, num_hit, blocks)
    group = manager.coordinator.single_type_managers[0]
    rows, row, counts = (
        group.req_to_blocks,
        group.req_to_blocks["secret-held"],
        group.num_cached_block,
    )
    held, index = manager.get_blocks("secret-held"), pool.cached_block_hash_to_block._cache
    walk, all_blocks = queue.iter_blocks_after(None), pool.blocks
    first, tail, end = next(walk), row[-1], queue.fake_free_list_tail
    calls = [manager.allocate_slots, manager.free, pool.get_num_free_blocks, queue.popleft_n]
    before = [b.block_id for b in row], dict(counts), len(index), pool.get_num_free_blocks()
    digest = [(b.block_id, b.ref_cnt, b.block_hash, b.block_hash_num_tokens) for b in all_blocks]
    pool.touch = pool.touch
    assert not is_native(manager)
    assert manager.block_pool is pool
    assert pool.free_block_queue is queue
    group = manager.coordinator.single_type_managers[0]
    assert group.req_to_blocks is rows
    assert rows["secret-held"] is row
    assert group.num_cached_block is counts
    assert row[-1] is tail
    assert pool.blocks[tail.block_id] is tail
    assert (
        [b.block_id for b in row],
        dict(counts),
        len(index),
        pool.get_num_free_blocks(),
    ) == before
    assert [
        (b.block_id, b.ref_cnt, b.block_hash, b.block_hash_num_tokens) for b in pool.blocks
    ] == digest
    assert held.blocks[0] is row
    assert next(walk) is first.next_free_block
    assert all_blocks[tail.block_id] is tail
    assert queue.fake_free_list_tail is end
    assert end.prev_free_block.next_free_block is end
    request.num_computed_tokens = 2 * ROW
    assert calls[0](request, ROW, num_new_computed_tokens=0) is not None
    assert len(row) == len(manager.get_block_ids("secret-held")[0]) > len(before[0])
    calls[1](request)
    assert "secret-held" not in rows
    assert calls[2]() == pool.num_gpu_blocks - 1
    assert len(calls[3](2)) == 2
    tail.ref_cnt = 5
    assert pool.blocks[tail.block_id].ref_cnt == 5


def test_a_method_taken_before_the_switch_pops_the_blocks_of_a_request() -> None:
    manager = make_manager()
    request = make_request("popped", list(range(40)))
    assert manager.allocate_slots(request, 40) is not None
    pop, num_free = manager.pop_blocks_for_free, manager.block_pool.get_num_free_blocks()
    manager.block_pool.touch = manager.block_pool.touch
    assert not is_native(manager)
    blocks = pop(request)
    assert blocks
    manager.block_pool.free_blocks(reversed(blocks))
    assert manager.block_pool.get_num_free_blocks() == num_free + len(blocks)


def test_a_hook_that_an_observer_sets_works_from_the_next_call_on() -> None:
    class Collector:
        pool: Any = None

        def on_block_allocated(self, block: Any) -> None:
            if self.pool is not None:
                pool, self.pool = self.pool, None
                pool.touch = pool.touch

        on_block_accessed = on_block_evicted = on_block_allocated

    collector = Collector()
    manager = native_manager(metrics_collector=collector)
    collector.pool = manager.block_pool
    request = make_request("a", list(range(100)))
    assert manager.allocate_slots(request, 100) is not None
    assert not is_native(manager)
    assert len(manager.get_block_ids("secret-a")[0]) == 7
    manager.free(request)


def test_a_policy_ends_with_the_switch_and_no_block_is_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in (("KVOXIDE_POLICY", "adaptive"), ("VLLM_PIN_SWA_TOKENS", "1")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            manager = native_manager(**MODELS["full and window"])
            traffic(manager, 40, 1)
            with caplog.at_level(logging.WARNING, "vllm.kvoxide"):
                rescuing(manager, [])
            assert f"{variable} has no effect" in caplog.records[-1].getMessage()
        traffic(manager, 40, 2)
        pool = manager.block_pool
        free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        assert sorted(free) == list(range(1, pool.num_gpu_blocks))
        assert pool.get_num_free_blocks() == len(free)
        assert pool.reset_prefix_cache()


@MANAGERS
def test_counts_of_cached_blocks_are_a_dictionary(make: Callable[..., Any]) -> None:
    manager = make(full(), states(), scheduler_block_size=ROW)
    group = manager.coordinator.single_type_managers[0]
    counts = group.num_cached_block
    assert isinstance(counts, dict)
    for name in ("a", "b"):
        request = make_request(name, [ord(name) + i for i in range(100)])
        manager.allocate_slots(request, 2 * ROW)
    shown = {"secret-a": 6, "secret-b": 6}
    assert json.loads(json.dumps(counts)) == shown
    assert dict(counts) == {**counts} == counts.copy() == counts == shown
    assert counts | {"c": 1} == {**shown, "c": 1}
    assert list(counts) == list(shown)
    assert len(counts) == 2
    assert pickle.loads(pickle.dumps(counts)) == shown
    assert dict.__getitem__(counts, "secret-a") == 6
    counts["secret-a"] = 3
    assert counts.pop("secret-b") == 6
    counts |= {"secret-b": 2}
    counts.update({"secret-a": 5}, **{"secret-b": 4})
    assert counts.setdefault("secret-a", 1) == 5
    assert dict(counts) == {"secret-a": 5, "secret-b": 4}
    counts["new"] = 0
    del counts["new"]
    with pytest.raises(KeyError):
        del counts["new"]
    assert group.num_cached_block == {"secret-a": 5, "secret-b": 4}
    checkpoints = manager.coordinator.single_type_managers[1]._checkpoints
    assert isinstance(checkpoints, dict)
    assert checkpoints == {}
    checkpoints["secret-a"] = (48, 1)
    assert checkpoints == {"secret-a": (48, 1)}
    assert manager.coordinator.single_type_managers[1]._checkpoints is checkpoints


def test_classes_have_vllms_names() -> None:
    manager = native_manager(**MODELS["full and states"])
    stock = stock_manager(**MODELS["full and states"])
    for part, of in PARTS.items():
        if part == "manager":
            continue
        native_cls, stock_cls = type(of(manager)), type(of(stock))
        assert f"{native_cls.__module__}.{native_cls.__qualname__}" == (
            f"{stock_cls.__module__}.{stock_cls.__qualname__}"
        )
        assert repr(of(manager)).partition(" at ")[0] == repr(of(stock)).partition(" at ")[0]
        assert isinstance(of(manager), stock_cls)


def test_a_switched_manager_and_its_pool_are_collected() -> None:
    import weakref

    manager = native_manager()
    traffic(manager, 10, 1)
    list(manager.block_pool.blocks)
    manager.block_pool.touch = manager.block_pool.touch
    gone = weakref.ref(manager), weakref.ref(manager.block_pool)
    del manager
    gc.collect()
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_the_manager_of_vllm_is_never_watched() -> None:
    manager = stock_manager()
    manager.block_pool.touch = manager.block_pool.touch
    assert type(manager) is StockManager


@pytest.mark.parametrize("part", ["pool", "queue", "index", "manager", "coordinator", "last group"])
def test_an_object_may_get_a_subclass_of_vllms_class(part: str) -> None:
    name = {
        "pool": "get_new_blocks",
        "queue": "append_n",
        "index": "insert",
        "manager": "allocate_slots",
        "coordinator": "allocate_new_blocks",
        "last group": "allocate_new_blocks",
    }[part]
    seen, counts = [], []
    for manager in both("full and window"):
        thing, calls = PARTS[part](manager), Counter[str]()
        base = getattr(type(thing), "_stock", type(thing))

        def counted(
            self: Any, *args: Any, _base: Any = base, _calls: Any = calls, **kwargs: Any
        ) -> Any:
            _calls[name] += 1
            return getattr(_base, name)(self, *args, **kwargs)

        thing.__class__ = type("Probed", (base,), {name: counted})
        seen.append(traffic(manager, 40))
        counts.append(calls)
        assert not is_native(manager)
    assert str(seen[0]) == str(seen[1])
    assert counts[0] == counts[1]
    assert counts[0][name] > 0


def _passed_on(self: Any, real: Any, *args: Any, **kwargs: Any) -> Any:
    return real(self, *args, **kwargs)


@pytest.mark.parametrize("name", ["cache_full_blocks", "free_blocks", "_maybe_evict_cached_block"])
def test_a_patch_of_the_class_is_undone_as_in_vllm(name: str) -> None:
    """``mock`` deletes a method that the class inherited, and sets again one that the class had."""
    before = dict(vars(BlockPool))
    for manager in both("full"):
        pool = type(manager.block_pool)
        real = getattr(pool, name)
        with mock.patch.object(pool, name, partialmethod(_passed_on, real)):
            traffic(manager, 20)
            assert getattr(BlockPool, name) is not before[name]
        traffic(manager, 20, 1)
        assert dict(vars(BlockPool)) == before
    native_manager(full())


@pytest.mark.parametrize("name", ["allocate_slots", "get_computed_blocks", "free"])
def test_a_hook_of_the_manager_is_deleted_as_in_vllm(name: str) -> None:
    seen = []
    for manager in both("full and states"):
        with pytest.raises(AttributeError):
            delattr(manager, name)
        calls = Counter[str]()
        wrap(manager, name, calls)
        first = traffic(manager, 20)
        delattr(manager, name)
        seen.append((first, dict(calls), traffic(manager, 40, 1), dict(calls)))
    assert is_native(manager)
    assert str(seen[0]) == str(seen[1])


def test_a_method_taken_before_the_switch_starts_the_step_of_each_group() -> None:
    counts = []
    for manager in both("full and window"):
        calls = Counter[str]()
        starts = manager.new_step_starts
        wrap(manager.coordinator.single_type_managers[0], "new_step_starts", calls)
        for _ in range(3):
            starts()
        counts.append(dict(calls))
    assert counts == [{"new_step_starts": 3}] * 2


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_switch_leaves_the_garbage_collector_as_it_was(is_enabled: bool) -> None:
    manager = native_manager()
    (gc.enable if is_enabled else gc.disable)()
    try:
        wrap(manager.block_pool, "touch", Counter())
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()


def test_reused_blocks_are_told_in_a_hook_that_came_before_their_watcher() -> None:
    seen = []
    for manager in (stock_manager(full()), native_manager(full())):
        if not hasattr(manager.block_pool, "unpin_blocks"):
            pytest.skip("this release watches no blocks")
        wrap(manager, "allocate_slots", Counter())
        told: list[int] = []
        pool = manager.block_pool
        pool.unpin_blocks(
            pool.get_new_blocks(3), lambda block, told=told: told.append(block.block_id)
        )
        for name, num_blocks in (("a", 48), ("b", 48), ("c", 3)):
            num_tokens = num_blocks * BLOCK_SIZE
            manager.allocate_slots(make_request(name, list(range(num_tokens))), num_tokens)
        seen.append(list(told))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3
