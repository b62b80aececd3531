"""Tests of code that replaces vLLM's, of other scheduler classes, and of sources of vLLM that equal
no known release, in a process where vLLM loaded its plugins."""

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.environment import UnreadableSourcesError, recognition, runtime_patches  # noqa: E402
from kvoxide.vllm.environment.schedulers import (  # noqa: E402
    roles,
    scheduler_reasons,
    vllm_names,
)
from kvoxide.vllm.plugin import UnsupportedError  # noqa: E402
from kvoxide.vllm.shadow.shadow import ShadowManager  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1 import kv_cache_spec_registry as registry  # noqa: E402
from vllm.v1.core import (  # noqa: E402
    kv_cache_coordinator,
    kv_cache_manager,
    kv_cache_utils,
)
from vllm.v1.core.block_pool import BlockPool  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.core.single_type_kv_cache_manager import (  # noqa: E402
    FullAttentionManager,
    SlidingWindowManager,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

from tests.testing.small_world import config, full, make_manager, traffic  # noqa: E402
from tests.testing.vllm_releases import EVERY_RELEASE  # noqa: E402
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

Stock = kv_cache_manager.KVCacheManager
MILLISECONDS = 1_000


class OtherPool(BlockPool):  # type: ignore[misc]
    """A pool with which a plugin replaces vLLM's."""


def other(*args: Any, **kwargs: Any) -> Any:
    """Act as a function with which a plugin replaces one of vLLM's."""
    raise NotImplementedError


def around(owner: Any, name: str) -> Any:
    stock = getattr(owner, name)

    @functools.wraps(stock)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return stock(*args, **kwargs)

    return wrapper


REPLACED: dict[str, tuple[Any, str, Any]] = {
    "v1.core.kv_cache_coordinator.BlockPool": (kv_cache_coordinator, "BlockPool", OtherPool),
    "v1.core.kv_cache_manager.get_kv_cache_coordinator": (
        kv_cache_manager,
        "get_kv_cache_coordinator",
        around(kv_cache_manager, "get_kv_cache_coordinator"),
    ),
    "v1.core.kv_cache_utils.hash_block_tokens": (kv_cache_utils, "hash_block_tokens", other),
    "v1.core.block_pool.BlockPool.free_blocks": (
        BlockPool,
        "free_blocks",
        around(BlockPool, "free_blocks"),
    ),
    "v1.core.single_type_kv_cache_manager.SlidingWindowManager.get_num_skipped_tokens": (
        SlidingWindowManager,
        "get_num_skipped_tokens",
        around(SlidingWindowManager, "get_num_skipped_tokens"),
    ),
    "v1.core.single_type_kv_cache_manager.FullAttentionManager.find_longest_cache_hit": (
        FullAttentionManager,
        "find_longest_cache_hit",
        classmethod(other),
    ),
    "v1.core.kv_cache_manager.KVCacheManager.usage": (Stock, "usage", property(other)),
    "v1.request.Request.num_tokens": (
        Request,
        "num_tokens",
        property(lambda self: len(self._all_token_ids)),
    ),
    "v1.core.block_pool.BlockPool got __bool__": (BlockPool, "__bool__", lambda self: True),
    "v1.kv_cache_interface.FullAttentionSpec got prefix_cacheable": (
        FullAttentionSpec,
        "prefix_cacheable",
        property(lambda self: True),
    ),
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_replaced_function_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    owner, attribute, replacement = REPLACED[name]
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, replacement, raising=False)
        assert len(runtime_patches.replacements()) == 1
        assert kv_cache_utils.get_request_block_hasher(16, sha256).__module__.startswith("vllm.")
        patch.setenv("KVOXIDE", "require")
        with pytest.raises(UnsupportedError, match=f"{name} .*{__name__}"):
            make_manager()
        patch.setenv("KVOXIDE", "auto")
        if replacement is not other and not isinstance(replacement, classmethod | property):
            manager = make_manager()
            assert type(manager) is Stock
            assert isinstance(manager.block_pool, OtherPool) == (replacement is OtherPool)
            (line,) = lines
            assert "kvoxide: not active for " in line
            assert name in line
    assert runtime_patches.replacements() == ()
    assert kv_cache_utils.get_request_block_hasher(16, sha256).__module__.startswith("kvoxide.")
    assert type(make_manager()) is native_class()


def test_a_removed_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(BlockPool, "get_usage")
        assert runtime_patches.replacements() == (
            "vllm.v1.core.block_pool.BlockPool.get_usage is removed",
        )


def test_a_manager_class_of_the_same_name_is_not_vllms(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    own = type("FullAttentionManager", (FullAttentionManager,), {"__module__": "vllm.vendor"})
    entry = registry.KVCacheSpecMetadata(FullAttentionSpec, own, FullAttentionSpec)
    monkeypatch.setitem(registry._REGISTRY_KVCACHESPEC_LIST, FullAttentionSpec, entry)
    assert type(make_manager(full())) is Stock
    assert (
        "vllm.vendor.FullAttentionManager manages FullAttentionSpec here instead of vLLM's"
        in lines[0]
    )


def test_a_spec_class_of_the_same_name_is_not_vllms(lines: list[str]) -> None:
    own: Any = type("FullAttentionSpec", (FullAttentionSpec,), {"__module__": "vllm.vendor"})
    spec = own(block_size=16, num_kv_heads=1, head_size=8, dtype=full().dtype)
    assert type(make_manager(spec)) is Stock
    assert "kvoxide does not support FullAttentionSpec" in lines[0]


def test_the_checks_take_less_than_20_milliseconds() -> None:
    taken = []
    for _ in range(5):
        recognition._code_at.cache_clear()
        started = time.process_time()
        assert recognition.recognise().is_known
        assert runtime_patches.replacements() == ()
        assert scheduler_reasons.__wrapped__(AsyncScheduler) == ()
        taken.append((time.process_time() - started) * MILLISECONDS)
    assert min(taken) < 20, taken


def test_code_of_no_known_release_is_left_alone(
    changed_pool: None, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    assert type(make_manager()) is Stock
    (line,) = lines
    known = ", ".join(EVERY_RELEASE)
    assert f"has other code than the known releases ({known}); differences from " in line
    assert "v1/core/block_pool.py: BlockPool.touch has changed" in line
    assert kv_cache_utils.get_request_block_hasher(16, sha256).__module__.startswith("vllm.")
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match=r"BlockPool\.touch has changed"):
        make_manager()


def test_shadow_runs_beside_code_of_no_known_release(
    changed_pool: None, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    manager = make_manager()
    assert type(manager) is ShadowManager
    (line,) = lines
    assert "shadow mode is on for the KV cache" in line
    assert "BlockPool.touch has changed" in line
    traffic(manager)
    assert manager.shadow is not None, lines


def test_shadow_names_what_other_code_does(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    monkeypatch.setenv("KVOXIDE_SHADOW_DIR", str(tmp_path))
    stock = BlockPool.free_blocks
    backwards = lambda pool, blocks: stock(pool, list(blocks)[::-1])  # noqa: E731
    monkeypatch.setattr(BlockPool, "free_blocks", backwards)
    manager = make_manager()
    assert "BlockPool.free_blocks is replaced by" in lines[0]
    traffic(manager)
    assert manager.shadow is None
    assert "kvoxide: shadow mode found a difference" in lines[1]


@pytest.mark.parametrize("mode", ["auto", "shadow"])
def test_sources_that_cannot_be_read_are_one_line(
    mode: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    def unreadable(origin: str) -> bytes:
        raise UnreadableSourcesError("its source cannot be read")

    recognition._code_at.cache_clear()
    monkeypatch.setattr(recognition, "read_source", unreadable)
    monkeypatch.setenv("KVOXIDE", mode)
    assert type(make_manager()) is Stock
    (line,) = lines
    assert "kvoxide: not active for " in line
    assert "its source cannot be read" in line
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match="its source cannot be read"):
        make_manager()


def forget_blocks(scheduler: Any, request_id: str) -> None:
    """Called by a scheduler. A row may be removed."""
    scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks.pop(request_id)


def replace_pool(scheduler: Any) -> None:
    """Called by a scheduler. A pool may not be replaced."""
    scheduler.kv_cache_manager.block_pool = None


class GoodScheduler(Scheduler):  # type: ignore[misc]
    """Does what kvoxide serves: it reads, and changes what may be changed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pool = self.kv_cache_manager.block_pool
        self.kv_cache_manager.tag_of_this_scheduler = 3
        self.kv_cache_manager.coordinator.retention_interval = None

    def trim(self, request_id: str) -> None:
        for manager in self.kv_cache_manager.coordinator.single_type_managers:
            row = manager.req_to_blocks[request_id]
            self.pool.free_blocks(row[3:])
            del row[3:]
            manager.num_cached_block[request_id] = 3
        self.pool.free_block_queue.append(self.pool.free_block_queue.popleft())
        self.pool.blocks[1].ref_cnt += 1
        self.pool.kv_event_queue = []
        self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        forget_blocks(self, request_id)


class BadScheduler(Scheduler):  # type: ignore[misc]
    """Does what kvoxide cannot serve, one thing per line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pool = self.kv_cache_manager.block_pool
        self.pool.free_block_queue = []

    def change(self, request_id: str) -> None:
        manager = self.kv_cache_manager
        manager.coordinator = None
        setattr(manager, "allocate_slots", other)  # noqa: B010
        setattr(manager, request_id, other)
        self.pool.blocks[3] = None
        self.pool.blocks.append(None)
        for index, group in enumerate(manager.coordinator.single_type_managers):
            group.req_to_blocks = {index: None}
            group.free(request_id)
        for block in self.pool.blocks:
            block.next_free_block = None
        (first := self.pool.blocks[0]).is_null = False
        del first.ref_cnt, manager.block_pool.get_new_blocks
        replace_pool(self)


BAD_USES = (
    "sets block_pool.free_block_queue in __init__()",
    "sets kv_cache_manager.coordinator in change()",
    "sets kv_cache_manager.allocate_slots in change()",
    "sets attributes of kv_cache_manager by computed names in change()",
    "changes block_pool.blocks in change()",
    "uses block_pool.blocks.append in change()",
    "sets single_type_managers[...].req_to_blocks in change()",
    "uses single_type_managers[...].free in change()",
    "sets KVCacheBlock.next_free_block in change()",
    "sets KVCacheBlock.is_null in change()",
    "deletes block_pool.get_new_blocks in change()",
    "sets kv_cache_manager.block_pool in replace_pool() of its module",
)


def test_a_scheduler_class_that_would_break_is_named(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    reasons = scheduler_reasons(BadScheduler)
    prefix = f"the scheduler class {__name__}.BadScheduler "
    assert tuple(reason.removeprefix(prefix).split(", ")[0] for reason in reasons) == BAD_USES

    class Harmless(BadScheduler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            Scheduler.__init__(self, *args, **kwargs)

    assert type(SchedulerWorld(scheduler_class=Harmless).scheduler.kv_cache_manager) is Stock
    assert f"{prefix}sets block_pool.free_block_queue" in lines[0]
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match=r"BadScheduler sets block_pool\.free_block_queue"):
        SchedulerWorld(scheduler_class=Harmless)


def test_a_scheduler_class_that_does_no_harm_runs() -> None:
    assert scheduler_reasons(GoodScheduler) == ()
    world = SchedulerWorld(scheduler_class=GoodScheduler)
    assert type(world.scheduler.kv_cache_manager) is native_class()
    assert len(world.serve("a", list(range(100)), 5)) == 105


def test_a_scheduler_class_of_its_own_is_looked_at(lines: list[str]) -> None:
    class Own:
        def __init__(self) -> None:
            self.kv_cache_manager: Any = Stock(
                config(), 800, scheduler_block_size=16, hash_block_size=16
            )

        def swap(self) -> None:
            self.kv_cache_manager.block_pool = None

    assert type(Own().kv_cache_manager) is Stock
    assert "Own sets kv_cache_manager.block_pool in swap()" in lines[0]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return self.kv_cache_manager.block_pool", "its code uses block_pool"),
        ("return getattr(self.kv_cache_manager, 'block_pool')", "its code uses block_pool"),
        ("return super().schedule()", None),
    ],
)
def test_a_scheduler_class_without_source(body: str, reason: str | None) -> None:
    names: dict[str, Any] = {"Scheduler": Scheduler, "__name__": "no_source"}
    exec(f"class Compiled(Scheduler):\n def schedule(self):\n  {body}", names)
    reasons = scheduler_reasons(names["Compiled"])
    assert (len(reasons) == 1 and reason in reasons[0]) if reason else reasons == ()


def test_a_scheduler_class_in_machine_code_is_named() -> None:
    machine_code = type("cyfunction", (), {"__call__": other, "__module__": "_cython"})
    compiled = type("Compiled", (Scheduler,), {"schedule": machine_code()})
    assert "schedule (machine code)" in scheduler_reasons(compiled)[0]


def test_vllms_own_schedulers_do_nothing_that_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = sys.modules[scheduler_reasons.__module__]
    monkeypatch.setattr(package, "_is_known", lambda source: False)
    assert scheduler_reasons.__wrapped__(AsyncScheduler) == ()


def test_what_kvoxides_objects_lack_is_not_served() -> None:
    """Attributes that vLLM's objects have and kvoxide's do not are refused to schedulers."""
    stock = type("Own", (Stock,), {})(config(), 800, scheduler_block_size=16, hash_block_size=16)
    parts: dict[roles.Role, Callable[[Any], Any]] = {
        "manager": lambda manager: manager,
        "coordinator": lambda manager: manager.coordinator,
        "group": lambda manager: manager.coordinator.single_type_managers[1],
        "pool": lambda manager: manager.block_pool,
        "block": lambda manager: manager.block_pool.blocks[3],
    }
    native = make_manager()
    for role, part in parts.items():
        missing = {n for n in set(dir(part(stock))) - set(dir(part(native))) if n[:2] != "__"}
        assert missing <= roles.UNSERVED.get(role, frozenset()), role
        for name in roles.WRITABLE.get(role, ()):
            assert vllm_names.is_vllms(name), name
            assert hasattr(part(native), name)
