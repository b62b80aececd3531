"""The shadow beside vLLM's offloading connector: silent while both agree, one report if not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kvoxide.vllm import host
from kvoxide.vllm.environment import settings
from kvoxide.vllm.plugin import entry_point as plugin
from kvoxide.vllm.shadow import connector_shadow_class
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as Stock,
)
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from tests.vllm import offloading_world
from tests.vllm.offloading_world import Scenario, Traffic, World

NUM_STEPS = 120

Native: Any = host.connector_class()


class WrongHit(Native):  # type: ignore[misc]
    def get_num_new_matched_tokens(self, *args: Any, **kwargs: Any) -> Any:
        length, is_async = super().get_num_new_matched_tokens(*args, **kwargs)
        return length and length - 1, is_async


class WrongJobs(Native):  # type: ignore[misc]
    def build_connector_meta(self, *args: Any) -> Any:
        metadata = super().build_connector_meta(*args)
        for job in metadata.store_jobs.values():
            job.dst_spec.block_ids[0] += 1
        return metadata


class WrongFlushes(Native):  # type: ignore[misc]
    def build_connector_meta(self, *args: Any) -> Any:
        metadata = super().build_connector_meta(*args)
        metadata.jobs_to_flush = {7}
        return metadata


class WrongCounts(Native):  # type: ignore[misc]
    def get_stats(self) -> Any:
        self.manager.tier.take_store_sizes()
        return super().get_stats()


class WrongEvents(Native):  # type: ignore[misc]
    def take_events(self) -> Any:
        return iter(list(super().take_events())[1:])


class WrongOrder(Native):  # type: ignore[misc]
    def on_new_request(self, request: Any) -> None:
        self.manager.tier.touch(list(self.manager.tier.get_chunks())[::2])
        super().on_new_request(request)


class Panics(Native):  # type: ignore[misc]
    def build_connector_meta(self, *args: Any) -> Any:
        self.manager.tier._panic_for_tests()


class Interrupted(Native):  # type: ignore[misc]
    def request_finished(self, *args: Any) -> Any:
        raise BaseException("not even an Exception")


PLANTED = [
    pytest.param(WrongHit, "get_num_new_matched_tokens: result, 0: vLLM ", id="answer"),
    pytest.param(WrongJobs, "OffloadingConnectorMetadata, store_jobs, ", id="job"),
    pytest.param(WrongFlushes, "jobs_to_flush: vLLM [", id="flush"),
    pytest.param(WrongCounts, "get_stats: result, stats, ", id="counter"),
    pytest.param(WrongEvents, "take_events: result", id="event"),
    pytest.param(WrongOrder, "state of the tier after it, order, ", id="order of eviction"),
    pytest.param(Panics, "kvoxide raised PoisonedError", id="panic"),
    pytest.param(Interrupted, "kvoxide raised BaseException", id="exception"),
]


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_HOST", "shadow")
    plugin.register()


def drawn(seed: int, **changes: Any) -> Scenario:
    return replace(Scenario.draw(seed), tier="vLLM's", over_kvoxide=seed % 2 == 0, **changes)


@pytest.fixture
def shadowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., World]:
    def make(scenario: Scenario, mode: settings.Mode = "auto") -> World:
        wanted = settings.Settings(mode, host_mode="shadow", check_every=20)
        with monkeypatch.context() as patch:
            patch.setattr(offloading_world, "_settings", lambda *_: wanted)
            return World(scenario, tmp_path, is_ours=False)

    return make


def played(scenario: Scenario, folder: Path, shadow: World) -> Any:
    """Plays the same traffic on vLLM's own connector and on one with a shadow, which answer and
    hold the same after every step. Returns the second one's connector."""
    stock = World(scenario, folder, is_ours=False)
    assert type(stock.connector) is Stock
    traffic = Traffic(scenario, stock, shadow)
    for _ in range(NUM_STEPS):
        if not traffic.step():
            break
    assert traffic.counts["stores"]
    return shadow.connector


@pytest.mark.parametrize("seed", range(16))
def test_both_agree(
    seed: int, tmp_path: Path, lines: list[str], shadowed: Callable[..., World]
) -> None:
    scenario = drawn(seed)
    world = shadowed(scenario, "shadow" if seed % 4 == 0 else "auto")
    assert type(world.connector.manager) is CPUOffloadingManager
    assert type(world.connector) is connector_shadow_class()
    connector = played(scenario, tmp_path, world)
    assert connector.shadow is not None, lines
    assert type(connector.shadow.native.manager) is host.native_class()
    assert connector.shadow.num_calls > NUM_STEPS
    assert not [line for line in lines if "difference" in line]


@pytest.mark.parametrize(("native", "what"), PLANTED)
def test_the_first_difference_is_told_once_and_ends_the_shadow(
    native: type,
    what: str,
    tmp_path: Path,
    lines: list[str],
    shadowed: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = drawn(0, num_chunks=30, has_events=True, extra={"eviction_policy": "lru"})
    monkeypatch.setattr(host, "connector_class", lambda: native)
    connector = played(scenario, tmp_path, shadowed(scenario))
    assert connector.shadow is None
    (error,) = [line for line in lines if "difference" in line]
    assert error.startswith("kvoxide shadow: first difference of the host tier, in ")
    assert what in error
    assert error.endswith("Serving goes on with vLLM's connector alone.")


def test_a_tier_that_cannot_be_kvoxides_has_no_shadow(
    tmp_path: Path,
    lines: list[str],
    shadowed: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OwnPolicy(LRUCachePolicy):  # type: ignore[misc]
        pass

    monkeypatch.setitem(CachePolicyFactory._registry, "lru", lambda: OwnPolicy)
    scenario = drawn(0, extra={"eviction_policy": "lru"})
    connector = played(scenario, tmp_path, shadowed(scenario))
    assert connector.shadow is None
    (line,) = [line for line in lines if "shadow: not started" in line]
    assert "OwnPolicy, not vLLM's own" in line


def test_code_of_another_plugin_has_no_shadow(
    tmp_path: Path,
    lines: list[str],
    shadowed: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ARCCachePolicy, "touch", lambda self, keys, req_context: None)
    assert type(shadowed(drawn(0)).connector) is Stock
    (line,) = [line for line in lines if "offloading connector" in line]
    assert "ARCCachePolicy.touch is replaced" in line


def test_a_tier_without_a_connector_is_vllms(lines: list[str]) -> None:
    with settings.using(settings.Settings(host_mode="shadow")):
        assert type(CPUOffloadingManager(8)) is CPUOffloadingManager
    assert lines == []
