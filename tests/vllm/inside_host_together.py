"""Tests of KVOXIDE_HOST_POLICY=adaptive in vLLM's scheduler: the content of the blocks that a
request reads, and servers on which GPU and CPU memory cannot decide together."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from kvoxide.vllm.environment import SettingsError, UnsupportedError
from kvoxide.vllm.environment.settings import Settings
from kvoxide.vllm.offload import connector_class
from kvoxide.vllm.plugin import entry_point as plugin

from tests.proof.connector import together
from tests.proof.connector.memory import Prefixes, WrongBytesError
from tests.proof.connector.together import TogetherWorld
from tests.proof.connector.traffic import Traffic
from tests.proof.connector.world import ServersWorld

NUM_STEPS = 100
NUM_SEEDS = 12
# tests/run.sh long connector makes many more.
_PLAIN = replace(together.draw(0), extra={"eviction_policy": "lru"}, has_events=False)
_SMALL = replace(_PLAIN, num_blocks=60, num_chunks=100, resets=0.0)
_WINDOWS = replace(_SMALL, layout="windows", num_blocks=90, num_chunks=300, interval=None)


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVOXIDE_HOST", raising=False)
    monkeypatch.setenv("KVOXIDE_HOST_POLICY", "adaptive")
    plugin.register()


def serve(world: Any, traffic: Traffic, num_steps: int = NUM_STEPS) -> None:
    for _ in range(num_steps):
        for happens in traffic.draw(world):
            happens(world)
        world.counts.update(world.step().counts())


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_requests_read_the_right_content(seed: int) -> None:
    counts = together.run(seed, NUM_STEPS)
    assert counts["stores"]
    assert counts["checked blocks"]


def counts_with_windows(num_steps: int) -> Counter[str]:
    world = TogetherWorld(_WINDOWS, Settings(mode="off", check_every=1))
    serve(world, Traffic(_WINDOWS), num_steps)
    world.finish()
    return world.counts


def test_loads_take_blocks_of_the_pool_and_of_cpu_memory() -> None:
    counts = counts_with_windows(250)
    assert counts["loads that attach blocks"]
    assert counts["loaded blocks"]


def test_a_load_fills_the_holes_of_a_window_between_blocks_of_the_pool() -> None:
    assert counts_with_windows(400)["loads that fill holes"]


def test_a_load_from_wrong_chunks_is_seen() -> None:
    world = TogetherWorld(_WINDOWS, Settings(mode="off"))
    load = world.connector._load

    def reversed_load(*arguments: Any) -> None:
        load(*arguments)
        for job in world.connector._current_batch_load_jobs.values():
            job.src_spec.block_ids = job.src_spec.block_ids[::-1].copy()

    world.connector._load = reversed_load
    with pytest.raises(WrongBytesError):
        serve(world, Traffic(_WINDOWS), 400)


@pytest.mark.parametrize("place", ["src_spec", "dst_spec"])
def test_a_job_with_wrong_blocks_is_seen(place: str) -> None:
    world = TogetherWorld(_SMALL, Settings(mode="off"))
    build = world.connector._build_store_jobs

    def reversed_jobs(output: Any) -> Any:
        jobs = build(output)
        for job in jobs.values():
            spec = getattr(job, place)
            spec.block_ids = spec.block_ids[::-1].copy()
        return jobs

    world.connector._build_store_jobs = reversed_jobs
    with pytest.raises(WrongBytesError):
        serve(world, Traffic(_SMALL), 400)


def test_a_step_that_does_not_wait_for_a_store_is_seen() -> None:
    scenario = replace(_SMALL, num_chunks=300)
    world = TogetherWorld(scenario, Settings(mode="off"))
    world.connector._planner.is_overwritten = lambda plan: False
    with pytest.raises(WrongBytesError):
        serve(world, Traffic(scenario), 2_000)


def test_a_server_says_that_both_decide_together(lines: list[str]) -> None:
    world = ServersWorld(_PLAIN, Prefixes())
    assert [type(each) for each in world.connectors] == [connector_class()]
    (connector,) = world.connectors
    assert connector.decides_together
    assert connector.manager.tier.policy == "adaptive"
    assert (
        f"kvoxide: GPU and CPU memory decide together which blocks to keep, with "
        f"{_PLAIN.num_chunks} blocks of CPU memory (KVOXIDE_HOST_POLICY=adaptive). "
        "eviction_policy, store_threshold and offload_prompt_only have no effect."
    ) in lines
    serve(world, Traffic(_PLAIN))
    assert world.counts["stores"]


@pytest.mark.parametrize("value", ["", "vllm", " VLLM "])
def test_without_the_setting_vllms_policy_decides(
    value: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_HOST_POLICY", value)
    world = ServersWorld(_PLAIN, Prefixes())
    assert not world.connectors[0].decides_together
    assert world.connectors[0].manager.tier.policy == "lru"
    assert not [line for line in lines if "together" in line or "HOST_POLICY" in line]


CANNOT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "chunks of several blocks": ({}, {"blocks_per_chunk": 2}, "blocks_per_chunk is not 1"),
    "events that say all": (
        {"has_events": True},
        {"self_describing_kv_events": True},
        "self_describing_kv_events is set",
    ),
    "two connectors": (
        {"children": 2},
        {},
        "kvoxide's offloading connector does not serve MultiConnector. Use OffloadingConnector "
        "alone",
    ),
    "no prefix caching": ({"has_gpu_hits": False}, {}, "prefix caching is disabled"),
}


@pytest.mark.parametrize("case", CANNOT)
def test_a_server_that_cannot_keeps_vllms_policy(
    case: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, extra, reason = CANNOT[case]
    scenario = replace(_PLAIN, extra={**_PLAIN.extra, **extra}, **changes)
    world = ServersWorld(scenario, Prefixes())
    assert not any(connector.decides_together for connector in world.connectors)
    (line,) = [line for line in lines if "HOST_POLICY" in line]
    assert line == (
        "kvoxide: KVOXIDE_HOST_POLICY=adaptive has no effect. CPU memory keeps the policy of "
        f"vLLM's configuration. Reason: {reason}."
    )
    serve(world, Traffic(scenario), 40)
    monkeypatch.setenv("KVOXIDE_HOST", "require")
    with pytest.raises(UnsupportedError, match="cannot follow KVOXIDE_HOST_POLICY=adaptive"):
        ServersWorld(scenario, Prefixes())


def test_a_server_without_kvoxides_manager_keeps_vllms_policy(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    monkeypatch.setenv("KVOXIDE_HOST", "shadow")
    ServersWorld(_PLAIN, Prefixes())
    (line,) = [line for line in lines if "HOST_POLICY" in line]
    assert "Reason: kvoxide's offloading connector is not active." in line


def test_an_unknown_policy_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_HOST_POLICY", "lru")
    with pytest.raises(
        SettingsError, match="KVOXIDE_HOST_POLICY='lru' is not valid; allowed: vllm"
    ):
        plugin.register()


def test_after_a_fault_of_cpu_memory_requests_are_served_without_it(lines: list[str]) -> None:
    world, traffic = ServersWorld(_SMALL, Prefixes()), Traffic(_SMALL)
    serve(world, traffic, 60)
    (connector,) = world.connectors
    with pytest.raises(Exception, match="planted by a test"):
        connector.manager.tier.unguarded._panic_for_tests()
    for name in list(world.scheduler.requests):
        world.abort(name=name)
    serve(world, traffic, 60)
    assert not connector.decides_together
    (line,) = [line for line in lines if "no longer decide together" in line]
    assert "Reason: the CPU offload cache failed." in line


def test_after_a_switch_to_vllms_manager_cpu_memory_decides_alone(lines: list[str]) -> None:
    world, traffic = ServersWorld(_SMALL, Prefixes()), Traffic(_SMALL)
    serve(world, traffic, 60)
    (connector,) = world.connectors
    manager = world.scheduler.kv_cache_manager
    manager.max_model_len = manager.max_model_len + 1
    serve(world, traffic, 100)
    assert not connector.decides_together
    (line,) = [line for line in lines if "no longer decide together" in line]
    assert "Reason: vLLM's own code manages the KV cache now." in line
