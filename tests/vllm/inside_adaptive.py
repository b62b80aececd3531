"""Tests of ``KVOXIDE_POLICY=adaptive`` in vLLM: the announcement, the policy in force, and the
settings that it excludes."""

import logging
from typing import Any

import pytest
from kvoxide.vllm.adapter import native_class
from kvoxide.vllm.environment import SettingsError
from kvoxide.vllm.plugin import entry_point as plugin
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.shadow.shadow import ShadowManager  # noqa: E402
from vllm.v1.core import kv_cache_manager  # noqa: E402

from tests.testing.clock import Clock  # noqa: E402
from tests.testing.small_world import (  # noqa: E402
    config,
    full,
    make_manager,
    make_request,
    states,
    traffic,
    window,
)

MODELS: dict[str, dict[str, Any]] = {
    "full": {"kv_cache_config": config(full())},
    "window": {"kv_cache_config": config(window())},
    "full and window": {"kv_cache_config": config(full(), window())},
    "full and states": {"kv_cache_config": config(full(), states()), "scheduler_block_size": 48},
    "events": {"kv_cache_config": config(full(), window()), "enable_kv_cache_events": True},
    "no caching": {"kv_cache_config": config(full()), "enable_caching": False},
    "eagle": {"kv_cache_config": config(full(), window()), "use_eagle": True},
}


@pytest.fixture(autouse=True)
def adaptive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", "adaptive")
    monkeypatch.setenv("KVOXIDE_CHECK", "1")


@pytest.mark.parametrize("model", MODELS)
def test_traffic_breaks_no_invariant(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", "require")
    for seed in range(5):
        manager = make_manager(**MODELS[model])
        assert type(manager) is native_class()
        assert traffic(manager, seed=seed)[-1] is True


def test_a_free_cached_block_is_free_and_can_be_hit() -> None:
    manager = make_manager()
    request = make_request("a", list(range(7_000_000, 7_000_100)))
    assert manager.allocate_slots(request, 100) is not None
    request.num_computed_tokens = 100
    manager.free(request)
    assert manager.block_pool.get_num_free_blocks() == 99
    again = make_request("b", list(range(7_000_000, 7_000_100)))
    assert manager.get_computed_blocks(again)[1] == 96


def test_hashes_set_and_taken_by_hand_break_nothing() -> None:
    manager = make_manager()
    pool = manager.block_pool
    request = make_request("a", list(range(7_000_000, 7_000_100)))
    assert manager.allocate_slots(request, 100) is not None
    request.num_computed_tokens = 100
    cached = list(manager.get_blocks(request.request_id).blocks[0][:5])
    manager.free(request)
    keys = [block.block_hash for block in cached]
    cached[0].reset_hash()
    cached[1].reset_hash()
    cached[1].set_block_hash(keys[1], 32)
    taken = pool.get_new_blocks(2)
    taken[0].set_block_hash(keys[0])
    pool.touch(cached[1:3])
    pool.free_blocks([*taken, *cached[1:3]])
    pool.evict_blocks({cached[3].block_id})
    assert traffic(manager)[-1] is True


def test_it_is_announced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("vllm.kvoxide")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    logger.setLevel(logging.INFO)
    make_manager()
    assert "100 blocks; policy adaptive (from the environment)" in caplog.messages[-1]


def test_an_interval_of_vllms_configuration_gives_way() -> None:
    manager = make_manager(kv_cache_config=config(full(), window(), interval=32))
    assert type(manager) is native_class()
    assert traffic(manager)[-1] is True


@pytest.mark.parametrize("mode", ["auto", "require", "shadow"])
@pytest.mark.parametrize(
    ("policy", "pinning"), [("lru", "0"), ("adaptive", "1")], ids=["unknown", "with pins"]
)
def test_a_wrong_policy_refuses_the_start(
    mode: str, policy: str, pinning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    monkeypatch.setenv("KVOXIDE_POLICY", policy)
    monkeypatch.setenv("VLLM_PIN_SWA_TOKENS", pinning)
    with pytest.raises(SettingsError, match=f"KVOXIDE_POLICY='{policy}' is not valid; allowed: "):
        plugin.register()
    monkeypatch.setenv("KVOXIDE", "off")
    plugin.register()
    assert type(make_manager()) is kv_cache_manager.KVCacheManager


def test_the_shadow_does_as_vllm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    manager = make_manager()
    assert type(manager) is ShadowManager
    assert traffic(manager)[-1] is True
    assert manager.shadow is not None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("periodic_tasks", "retention_log", "lost_hits_log"):
        monkeypatch.setattr(f"kvoxide.vllm.adapter.{module}.monotonic", clock)
    return clock


def admitted(manager: Any, name: str, num_tokens: int, first: int = 7_000_000) -> int:
    """Compute and end a request whose tokens count up. Return the tokens that it hit."""
    request = make_request(name, list(range(first, first + num_tokens)))
    blocks, num_hit, *_ = manager.get_computed_blocks(request)
    new = num_tokens - num_hit
    assert manager.allocate_slots(request, new, num_hit, blocks) is not None
    manager.free(request)
    return int(num_hit)


@pytest.mark.parametrize("model", ["full", "full and window", "events"])
def test_a_minute_with_traffic_is_one_line_in_the_log(
    model: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("vllm.kvoxide")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    monkeypatch.setattr(logger, "propagate", False)
    logger.setLevel(logging.INFO)
    manager = make_manager(**MODELS[model])
    caplog.clear()
    manager.new_step_starts()
    num_hit = [admitted(manager, name, 100) for name in "ab"][1]
    assert num_hit > 0
    clock.now += 59
    manager.new_step_starts()
    assert not caplog.messages
    clock.now += 2
    manager.new_step_starts()
    manager.new_step_starts()
    (message,) = caplog.messages
    assert message.startswith(
        f"kvoxide: adaptive retention: seconds=61 prompt_tokens=200 hit_rate={num_hit / 200:.3f} "
        "answer_hit_rate=0.000 evicted_full_blocks=0 evicted_tail_blocks=0 "
        "scoring_function=recency "
    )

    clock.now += 61
    manager.new_step_starts()
    assert len(caplog.messages) == 1, "nothing was admitted"
    for number in range(10):
        admitted(manager, f"c{number}", 700, first=number * 10_000)
    clock.now += 61
    manager.new_step_starts()
    hits = "seconds=122 prompt_tokens=7000 hit_rate=0.000 answer_hit_rate=0.000 "
    assert hits in caplog.messages[1]
    assert "evicted_full_blocks=0 " not in caplog.messages[1]
    assert "recency_kept_rate=0.000 frequency_kept_rate=0.000" in caplog.messages[1]


@pytest.mark.parametrize("policy", ["adaptive", "standard"])
def test_a_step_reads_the_clock_once(
    policy: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", policy)
    manager = make_manager()
    clock.num_reads = 0
    for _ in range(5):
        manager.new_step_starts()
    assert clock.num_reads == 5
    assert (manager.engine.retention_report() is None) == (policy == "standard")
