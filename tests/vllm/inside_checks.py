"""Tests of ``KVOXIDE_CHECK``: every invariant is checked after every n-th call, and the engine
stops once one is broken."""

import logging
from typing import Any

import pytest
from kvoxide import PoisonedError
from kvoxide.vllm.environment import SettingsError
from kvoxide.vllm.plugin import entry_point as plugin
from vllm.plugins import load_general_plugins

load_general_plugins()

from tests.testing.small_world import config, full, make_manager, make_request, traffic, window  # noqa: E402

MODELS: dict[str, dict[str, Any]] = {
    "full and window": {"kv_cache_config": config(full(), window())},
    "window": {"kv_cache_config": config(window())},
    "events": {"kv_cache_config": config(full(), window()), "enable_kv_cache_events": True},
    "no caching": {"kv_cache_config": config(full()), "enable_caching": False},
    "interval": {"kv_cache_config": config(full(), window(), interval=32), "watermark": 0.1},
    "eagle": {"kv_cache_config": config(full(), window()), "use_eagle": True},
}


@pytest.fixture(params=["", "1"])
def pinning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PIN_SWA_TOKENS", request.param)
    monkeypatch.setenv("VLLM_PIN_MIN_DROP_SIZE", "2")


def checked(monkeypatch: pytest.MonkeyPatch, every: int, **arguments: Any) -> Any:
    monkeypatch.setenv("KVOXIDE_CHECK", str(every))
    monkeypatch.setenv("KVOXIDE", "require")
    return make_manager(**arguments)


def running(manager: Any, name: str = "a") -> Any:
    request = make_request(name, list(range(7_000_000, 7_000_100)))
    assert manager.allocate_slots(request, 100) is not None
    request.num_computed_tokens = 100
    return request


def break_something(manager: Any, request: Any) -> int:
    """Remove the references of a block in use, so that it is in no place at all. Return its id."""
    block = manager.get_blocks(request.request_id).blocks[0][2]
    block.ref_cnt = 0
    return int(block.block_id)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.usefixtures("pinning")
def test_legal_traffic_breaks_nothing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traffic has the same results as without checks."""
    for seed in range(5):
        manager = checked(monkeypatch, 1, **MODELS[model])
        unchecked = checked(monkeypatch, 0, **MODELS[model])
        assert traffic(manager, seed=seed) == traffic(unchecked, seed=seed)


def test_blocks_outside_any_request_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = checked(monkeypatch, 1)
    pool = manager.block_pool
    request = running(manager)
    taken = pool.get_new_blocks(5)
    cached = manager.get_blocks(request.request_id).blocks[0][:3]
    pool.touch(cached)
    deferred = manager.pop_blocks_for_free(request)
    taken[0].ref_cnt += 1
    pool.free_blocks([taken[0], *taken])
    pool.unpin_blocks(cached, lambda block: None)
    pool.free_blocks(list(reversed(deferred)))
    assert pool.reset_prefix_cache()
    assert manager.usage == 0.0


def test_hashes_set_and_taken_by_hand_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PIN_SWA_TOKENS", "1")
    monkeypatch.setenv("VLLM_PIN_MIN_DROP_SIZE", "1")
    manager = checked(monkeypatch, 1)
    pool = manager.block_pool
    request = running(manager)
    cached = list(manager.get_blocks(request.request_id).blocks[0][:5])
    cached[0].reset_hash()
    manager.free(request)
    pinned = [block for block in cached if block.block_hash is not None]
    keys = [block.block_hash for block in pinned]
    pinned[0].reset_hash()
    pinned[1].reset_hash()
    pinned[1].set_block_hash(keys[1], 32)
    taken = pool.get_new_blocks(2)
    taken[0].set_block_hash(keys[0])
    pool.free_blocks(taken)
    assert traffic(manager)[-1] is True


@pytest.mark.parametrize("every", [1, 3])
def test_a_broken_invariant_stops_the_manager(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = checked(monkeypatch, every)
    request = running(manager)  # the first call
    block_id = break_something(manager, request)
    for _ in range(2, max(every, 2)):
        manager.take_new_block_ids()
    with pytest.raises(PoisonedError) as caught:
        manager.take_new_block_ids()
    call = max(every, 2)
    assert f"call {call} (take_new_block_ids) broke an invariant: " in str(caught.value)
    broken = f"block {block_id} has 0 references but 1 holders (invariant 6 or 7)"
    assert broken in str(caught.value)
    with pytest.raises(PoisonedError, match=f"block {block_id} "):
        manager.free(request)
    with pytest.raises(PoisonedError, match=f"block {block_id} "):
        _ = manager.usage


def test_without_checks_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = checked(monkeypatch, 0)
    request = running(manager)
    break_something(manager, request)
    for _ in range(10):
        manager.take_new_block_ids()
    with pytest.raises(AssertionError, match="0 references but 1 holders"):
        manager.engine.check_invariants()


@pytest.mark.parametrize("value", ["-1", "yes", "1.5", str(2**63)])
def test_a_wrong_value_refuses_the_start(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_CHECK", value)
    with pytest.raises(SettingsError, match=f"KVOXIDE_CHECK='{value}' is not valid; allowed: 0"):
        plugin.register()
    with pytest.raises(SettingsError, match="KVOXIDE_CHECK"):
        make_manager()


def test_the_log_says_that_it_is_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("vllm.kvoxide")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    logger.setLevel(logging.INFO)
    checked(monkeypatch, 250)
    assert caplog.messages[-1].endswith("all invariants are checked once in 250 calls")


def test_shadow_reports_a_broken_invariant(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    monkeypatch.setenv("KVOXIDE_CHECK", "1")
    monkeypatch.setenv("KVOXIDE", "shadow")
    monkeypatch.setenv("KVOXIDE_SHADOW_DIR", str(tmp_path))
    monkeypatch.setattr(logging.getLogger("vllm.kvoxide"), "handlers", [caplog.handler])
    manager = make_manager()
    request = running(manager)
    break_something(manager.shadow.native, request)
    assert manager.allocate_slots(request, 1) is not None
    assert "raised PoisonedError" in caplog.messages[-1]
    assert manager.shadow is None
    running(manager, "b")
