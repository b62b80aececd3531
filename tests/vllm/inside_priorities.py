"""Tests of priorities and times to live that clients write into ``vllm_xargs``, inside vLLM."""

from typing import Any

import pytest
from kvoxide.vllm.environment import SettingsError, counters
from vllm import SamplingParams
from vllm.plugins import load_general_plugins

load_general_plugins()

from tests.testing.logs import about  # noqa: E402
from tests.testing.small_world import config, full, make_manager, make_request  # noqa: E402


@pytest.fixture(autouse=True)
def adaptive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", "adaptive")
    monkeypatch.setenv("KVOXIDE_CHECK", "1")
    monkeypatch.setenv("KVOXIDE", "require")


@pytest.fixture(autouse=True)
def no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_counters", {})


def counted() -> dict[str, float]:
    """Return how many requests claimed a priority, by how the claim was handled."""
    values = counters.counters().get("kvoxide_hints_total", {})
    labelled = [(dict(labels), value) for labels, value in values.items()]
    return {labels["result"]: value for labels, value in labelled if labels["hint"] == "priority"}


def request(name: str, prompt: int, num_blocks: int, extra_args: Any = None) -> Any:
    first = prompt * 100_000
    made = make_request(name, list(range(first, first + num_blocks * 16 + 1)))
    made.sampling_params = SamplingParams(max_tokens=10, extra_args=extra_args)
    return made


def serve(manager: Any, served: Any) -> int:
    """Serve a request from look-up to end. Return the tokens that it hit."""
    hit, num_hit, *_ = manager.get_computed_blocks(served)
    num_new = served.num_tokens - num_hit
    assert manager.allocate_slots(served, num_new, num_hit, hit) is not None
    served.num_computed_tokens = served.num_tokens
    manager.free(served)
    return int(num_hit)


def num_kept(extra_args: Any, manager: Any = None) -> int:
    """Return how many tokens of a prompt of 64 are still cached after traffic that fills the pool
    often."""
    manager = manager or make_manager(kv_cache_config=config(full()))
    serve(manager, request("first", 1, 4, extra_args))
    for i in range(2, 60):
        serve(manager, request(f"other {i}", i, 20))
    return int(manager.get_computed_blocks(request("again", 1, 4))[1])


@pytest.mark.parametrize(
    ("extra_args", "kept"),
    [
        (None, 0),
        ({}, 0),
        ({"other": 1}, 0),
        ({"kvoxide_priority": 50}, 0),
        ({"kvoxide_ttl": 600}, 0),
        ({"kvoxide_priority": 80}, 64),
        ({"kvoxide_priority": 80, "kvoxide_ttl": 600}, 64),
        ({"kvoxide_priority": 80, "kvoxide_ttl": 600.5}, 64),
        ({"kvoxide_priority": 80, "kvoxide_ttl": 0.001}, 0),
        ({"kvoxide_priority": 0}, 0),
    ],
)
def test_a_priority_keeps_blocks(extra_args: Any, kept: int, lines: list[str]) -> None:
    assert num_kept(extra_args) == kept
    assert not about(lines, "hint")


def test_without_a_share_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", "adaptive,share=0")
    assert num_kept({"kvoxide_priority": 100}) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"kvoxide_priority": 101},
        {"kvoxide_priority": -1},
        {"kvoxide_priority": "high"},
        {"kvoxide_priority": 50.5},
        {"kvoxide_priority": True},
        {"kvoxide_priority": [80]},
        {"kvoxide_priority": 2**62},
        {"kvoxide_priority": 80, "kvoxide_ttl": float("nan")},
        {"kvoxide_priority": 80, "kvoxide_ttl": "x" * 1000},
    ],
)
def test_what_is_wrong_is_told_once_and_ignored(wrong: dict[str, Any], lines: list[str]) -> None:
    manager = make_manager(kv_cache_config=config(full()))
    assert serve(manager, request("wrong", 1, 4, wrong)) == 0
    assert serve(manager, request("wrong too", 2, 4, wrong)) == 0
    (message,) = about(lines, "hint")
    assert message.startswith("kvoxide: ignoring a malformed hint of a request: kvoxide_")
    assert len(message) < 400
    assert num_kept({"kvoxide_priority": 80}, manager) == 64
    assert counted() == {"malformed": 2, "taken": 1}


def test_a_priority_above_the_limit_is_lowered_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", "50")
    manager = make_manager(kv_cache_config=config(full()))
    serve(manager, request("another", 99, 4, {"kvoxide_priority": 100, "kvoxide_ttl": 600}))
    assert num_kept({"kvoxide_priority": 80}, manager) == 0
    (message,) = about(lines, "hint")
    assert "its priority 100 was lowered to 50, the limit of KVOXIDE_PRIORITY" in message
    assert counted() == {"clipped": 2}


def test_a_priority_up_to_the_limit_is_unchanged(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", "80")
    assert num_kept({"kvoxide_priority": 80}) == 64
    assert num_kept({"kvoxide_priority": 90}) == 64
    assert counted() == {"taken": 1, "clipped": 1}
    assert len(about(lines, "hint")) == 1


@pytest.mark.parametrize("value", ["off", "0"])
def test_an_operator_can_ignore_all_priorities(
    value: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", value)
    manager = make_manager(kv_cache_config=config(full()))
    serve(manager, request("low", 98, 4, {"kvoxide_priority": "high"}))
    assert num_kept({"kvoxide_priority": 100}, manager) == 0
    (message,) = about(lines, "hint")
    assert "hints of all requests, because KVOXIDE_PRIORITY is off" in message
    assert counted() == {"ignored": 2}


def test_a_wrong_limit_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", "101")
    with pytest.raises(SettingsError, match="KVOXIDE_PRIORITY='101' is not valid; allowed: off"):
        make_manager(kv_cache_config=config(full()))


@pytest.mark.parametrize("policy", ["adaptive", "standard"])
def test_it_is_read_once_and_by_nobody_else(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", policy)
    manager = make_manager(kv_cache_config=config(full()))

    class Counting:
        num_reads = 0

        @property
        def extra_args(self) -> dict[str, int]:
            type(self).num_reads += 1
            return {"kvoxide_priority": 80}

    served = request("a", 1, 4)
    served.sampling_params = Counting()
    hit, num_hit, *_ = manager.get_computed_blocks(served)
    assert manager.allocate_slots(served, served.num_tokens, num_hit, hit) is not None
    served.num_computed_tokens = served.num_tokens
    for token in range(40):
        served.append_output_token_ids(token)
        assert manager.allocate_slots(served, 1) is not None
        served.num_computed_tokens += 1
    manager.free(served)
    assert Counting.num_reads == (1 if policy == "adaptive" else 0)


def test_a_request_of_a_pooling_model_has_none() -> None:
    manager = make_manager(kv_cache_config=config(full()))
    served = request("a", 1, 4)
    served.sampling_params = None
    assert serve(manager, served) == 0
