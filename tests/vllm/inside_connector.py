"""Compares vLLM's offloading connector with kvoxide's methods and with vLLM's own, step by step."""

import random
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from kvoxide import __version__
from kvoxide.vllm.environment import SettingsError
from kvoxide.vllm.offload import connector_class, native_class
from kvoxide.vllm.plugin import UnsupportedError
from kvoxide.vllm.plugin import entry_point as plugin
from kvoxide.vllm.shadow import connector_shadow_class
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as Stock,
)
from vllm.v1.kv_offload.base import LookupResult
from vllm.v1.kv_offload.cpu import manager as manager_module
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager as StockManager
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from tests.proof.connector.comparison import Comparison
from tests.proof.connector.memory import Prefixes
from tests.proof.connector.scenario import LAYOUTS, Scenario
from tests.proof.connector.world import ServersWorld, VllmsConnector

# tests/run.sh long connector makes a million.
NUM_STEPS = 120
_PLAIN = replace(Scenario.draw(0), children=1, extra={"eviction_policy": "lru"})


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVOXIDE_HOST", raising=False)
    plugin.register()


def made(cls: Any) -> Any:
    return cls.__new__(cls)


@pytest.mark.parametrize("seed", range(len(LAYOUTS)))
def test_jobs_and_state_are_vllms_after_every_step(seed: int) -> None:
    comparison = Comparison(Scenario.draw(seed))
    stock, ours = (side.connectors[0] for side in comparison.sides)
    assert (type(stock), type(ours)) == (VllmsConnector, connector_class())
    counts = comparison.run(NUM_STEPS)
    assert counts["stores"]
    assert counts["checked blocks"]


def test_look_ups_ask_and_answer_alike() -> None:
    stock, ours = (made(cls) for cls in (type("Own", (Stock,), {}), connector_class()))
    rng = random.Random(1)
    for _ in range(1_000):
        weights = [rng.random() ** 3 for _ in LookupResult]
        answers = rng.choices(list(LookupResult), weights, k=rng.randrange(12))
        sizes = rng.randrange(1, 5), rng.choice([None, *range(1, 6)])
        told = []
        for side in (stock, ours):
            side.manager = mock.Mock(
                lookup=mock.Mock(side_effect=lambda key, _, answers=answers: answers[key])
            )
            side._events_tracker = SimpleNamespace(
                self_describing_enabled=False, record_lookup=lambda *_: None
            )
            keys = list(range(len(answers)))
            told.append(
                (
                    side._maximal_prefix_lookup(keys, None, None, None, 0),
                    side._sliding_window_lookup(keys, sizes[0], None, sizes[1]),
                    side.manager.lookup.mock_calls,
                )
            )
        assert told[0] == told[1]


def test_derived_classes_and_off_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Derived(Stock):  # type: ignore[misc]
        pass

    assert type(made(Derived)) is Derived
    monkeypatch.setenv("KVOXIDE_HOST", "off")
    assert type(made(Stock)) is Stock


@pytest.mark.parametrize("tier", ["kvoxide's", "vLLM's"])
def test_auto_gives_kvoxides_connector_and_says_over_what(
    tier: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if tier == "vLLM's":
        monkeypatch.setattr(manager_module.CPUOffloadingManager, "touch", lambda *_: None)
    world = ServersWorld(_PLAIN, Prefixes())
    assert type(world.connectors[0]) is connector_class()
    manager = "kvoxide's CPU offload cache" if tier == "kvoxide's" else "CPUOffloadingManager"
    said = f"active for the offloading connector, version {__version__}: it uses {manager}"
    assert f"kvoxide: {said}" in lines


def test_a_connector_that_cannot_be_made_is_vllms(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Any, *args: Any) -> None:
        raise LookupError("planted")

    monkeypatch.setattr(connector_class(), "__init__", failing)
    assert type(ServersWorld(_PLAIN, Prefixes()).connectors[0]) is Stock
    (line,) = [line for line in lines if "offloading connector" in line]
    assert "vLLM's own code is used. Reason: unexpected LookupError" in line


def test_replaced_methods_are_named(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    monkeypatch.setattr(Stock, "_lookup", lambda *_: None)
    assert type(made(Stock)) is Stock
    assert "not active for the offloading connector; vLLM's own code is used" in lines[0]
    assert "OffloadingConnectorScheduler._lookup is replaced" in lines[0]
    monkeypatch.setenv("KVOXIDE_HOST", "require")
    with pytest.raises(UnsupportedError, match="cannot provide the offloading connector"):
        made(Stock)


def with_entry(value: Any, **changes: Any) -> Scenario:
    """Return a scenario with an entry for kvoxide in the connector's configuration."""
    return replace(_PLAIN, extra={**_PLAIN.extra, "kvoxide": value}, **changes)


@pytest.mark.parametrize("children", [1, 2])
@pytest.mark.parametrize("value", ["off", " OFF ", False])
def test_a_connector_can_be_switched_off_in_its_configuration(
    value: object, children: int, lines: list[str]
) -> None:
    found: list[Any] = ServersWorld(with_entry(value, children=children), Prefixes()).connectors
    assert [type(each.manager) for each in found] == [StockManager] * children
    assert [type(each) for each in found] == [Stock] * children
    assert not [line for line in lines if "KV cache" not in line]


@pytest.mark.parametrize("value", ["auto", "require", "", None])
def test_a_connector_can_be_switched_on_in_its_configuration(value: object) -> None:
    connector: Any = ServersWorld(with_entry(value), Prefixes()).connectors[0]
    assert type(connector.manager) is native_class()
    assert type(connector) is connector_class()


@pytest.mark.parametrize("variable", ["off", "auto", "shadow"])
@pytest.mark.parametrize("entry", ["off", "auto", "shadow"])
def test_the_variable_wins_over_the_entry(
    variable: str, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_HOST", variable)
    (connector,) = ServersWorld(with_entry(entry), Prefixes()).connectors
    classes = {"off": Stock, "auto": connector_class(), "shadow": connector_shadow_class()}
    assert type(connector) is classes[variable]


def test_the_entry_wins_over_the_shadow_that_kvoxide_shadow_implies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    (connector,) = ServersWorld(with_entry("off"), Prefixes()).connectors
    assert type(connector) is Stock
    (connector,) = ServersWorld(with_entry(None), Prefixes()).connectors
    assert type(connector) is connector_shadow_class()


def test_an_entry_that_requires_kvoxide_refuses_vllms_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stock, "_lookup", lambda *_: None)
    message = r"kv_connector_extra_config\.kvoxide=require forbids vLLM's own code; set kv_conn"
    with pytest.raises(UnsupportedError, match=message):
        ServersWorld(with_entry("require"), Prefixes())


@pytest.mark.parametrize("value", ["yes", True, 1, ["auto"], {"mode": "auto"}])
@pytest.mark.parametrize("variable", [None, "off"])
def test_a_wrong_entry_stops_the_start(
    variable: str | None, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("KVOXIDE_HOST", variable)
    message = (
        f"kv_connector_extra_config.kvoxide={value!r} is not valid; allowed: auto, require, off, "
        "shadow"
    )
    with pytest.raises(SettingsError, match=re.escape(message)):
        ServersWorld(with_entry(value), Prefixes())


def test_sources_are_asked_and_counted_alike() -> None:
    stock, ours = (made(cls) for cls in (type("Own", (Stock,), {}), connector_class()))
    rng = random.Random(2)
    for _ in range(1_000):
        ends = [rng.randrange(20) for _ in range(rng.randrange(8))]
        ranges = [(end - rng.randrange(5), end, key) for key, end in enumerate(ends)]
        sources = rng.choices(list(CacheHitSource), k=len(ranges))
        state = SimpleNamespace(
            num_locally_computed_tokens=rng.randrange(8), load_key_ranges=ranges, req_context=None
        )
        num_tokens, told = rng.randrange(16), []
        for side in (stock, ours):
            side.manager = mock.Mock()
            side._planner = mock.Mock(has_own_tier=False)
            side.manager.get_load_source.side_effect = lambda key, _, sources=sources: sources[key]
            side._req_status = {"a": state}
            request = SimpleNamespace(request_id="a")
            found = side.get_external_cache_hit_sources(request, num_tokens)
            told.append((list(found.items()), side.manager.get_load_source.mock_calls))
        assert told[0] == told[1]
