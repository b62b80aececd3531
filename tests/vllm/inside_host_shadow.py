"""Tests of the shadow of vLLM's offloading connector. It is silent while both agree, and reports
once if they differ."""

from dataclasses import replace
from typing import Any

import pytest
from kvoxide.vllm import offload
from kvoxide.vllm.environment import counters, settings
from kvoxide.vllm.plugin import entry_point as plugin
from kvoxide.vllm.shadow import connector_shadow_class
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as Stock,
)
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from tests.proof.connector.comparison import Comparison
from tests.proof.connector.scenario import LAYOUTS, Scenario
from tests.proof.connector.world import ServersWorld

NUM_STEPS = 120

Native: Any = offload.connector_class()


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
    pytest.param(WrongHit, "get_num_new_matched_tokens: result, 0. vLLM: ", id="answer"),
    pytest.param(WrongJobs, "OffloadingConnectorMetadata, store_jobs, ", id="job"),
    pytest.param(WrongFlushes, "jobs_to_flush. vLLM: [", id="flush"),
    pytest.param(WrongCounts, "get_stats: result, stats, ", id="counter"),
    pytest.param(WrongEvents, "take_events: result", id="event"),
    pytest.param(WrongOrder, "state of the tier afterwards, order, ", id="order of eviction"),
    pytest.param(Panics, "kvoxide: raised PoisonedError", id="panic"),
    pytest.param(Interrupted, "kvoxide: raised BaseException", id="exception"),
]


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_HOST", "shadow")
    plugin.register()


def drawn(seed: int, **changes: Any) -> Scenario:
    return replace(Scenario.draw(seed), tier="vLLM's", **changes)


def shadowed(scenario: Scenario, mode: settings.Mode = "auto") -> Comparison:
    """Return the same traffic on vLLM's own connector and on one with a shadow."""
    comparison = Comparison(scenario)
    wanted = settings.Settings(mode, host_mode="shadow", check_every=5)
    stock, _ = comparison.sides
    comparison.sides = (stock, ServersWorld(scenario, stock._prefixes, wanted))
    return comparison


def played(comparison: Comparison, num_steps: int = NUM_STEPS) -> Any:
    """Play until the end. Both must answer and hold the same after every step. Return the second
    one's connector."""
    assert comparison.run(num_steps)["stores"]
    return comparison.sides[1].connectors[0]


@pytest.mark.parametrize("seed", range(len(LAYOUTS)))
def test_both_agree(seed: int, lines: list[str]) -> None:
    comparison = shadowed(drawn(seed), "shadow" if seed % 4 == 0 else "auto")
    connector: Any = comparison.sides[1].connectors[0]
    assert type(connector.manager) is CPUOffloadingManager
    assert isinstance(connector, connector_shadow_class())
    connector = played(comparison, NUM_STEPS // 2)
    shadow = connector.shadow
    assert shadow is not None, lines
    assert type(shadow.native.manager) is offload.native_class()
    assert shadow.agreement.num_calls > NUM_STEPS // 2
    assert not [line for line in lines if "difference" in line]
    connector.shutdown()
    num_calls = shadow.agreement.num_calls
    assert lines[-1] == (
        f"kvoxide: shadow mode ends with the server. It compared {num_calls} calls of "
        "the offloading connector and the CPU offload cache: no difference."
    )
    counted = counters.counters()["kvoxide_shadow_calls_total"]
    assert counted[(("part", "host"),)] >= num_calls


@pytest.mark.parametrize(("native", "what"), PLANTED)
def test_the_first_difference_is_told_once_and_ends_the_shadow(
    native: type,
    what: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = drawn(
        0, num_chunks=30, has_events=True, children=1, extra={"eviction_policy": "lru"}
    )
    monkeypatch.setattr(offload, "connector_class", lambda: native)
    connector = played(shadowed(scenario))
    assert connector.shadow is None
    (error,) = [line for line in lines if "difference" in line]
    assert error.startswith(
        "kvoxide: shadow mode found a difference and ended for the offloading connector"
    )
    assert what in error
    assert error.endswith("Please report this line.")


def test_a_tier_that_cannot_be_kvoxides_has_no_shadow(
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OwnPolicy(LRUCachePolicy):  # type: ignore[misc]
        pass

    monkeypatch.setitem(CachePolicyFactory._registry, "lru", lambda: OwnPolicy)
    scenario = drawn(0, extra={"eviction_policy": "lru"})
    connector = played(shadowed(scenario))
    assert connector.shadow is None
    (line,) = [
        line for line in lines if "not active for shadow mode of the offloading connector" in line
    ]
    assert "OwnPolicy, not vLLM's own" in line


def test_code_of_another_plugin_has_no_shadow(
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ARCCachePolicy, "touch", lambda self, keys, req_context: None)
    assert type(shadowed(drawn(0)).sides[1].connectors[0]) is Stock
    (line,) = [line for line in lines if "offloading connector" in line]
    assert "ARCCachePolicy.touch is replaced" in line


def test_a_tier_without_a_connector_is_vllms(lines: list[str]) -> None:
    with settings.using(settings.Settings(host_mode="shadow")):
        assert type(CPUOffloadingManager(8)) is CPUOffloadingManager
    assert lines == []
