"""Tests that the engine in vLLM explains the hits and misses of vLLM's requests."""

from typing import Any

import pytest
from kvoxide.vllm.adapter import native_class
from vllm.plugins import load_general_plugins

load_general_plugins()

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
    "no caching": {"kv_cache_config": config(full()), "enable_caching": False},
    "eagle": {"kv_cache_config": config(full(), window()), "use_eagle": True},
}


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", "require")
    monkeypatch.setenv("KVOXIDE_CHECK", "1")


def serve(manager: Any, name: str, tokens: list[int]) -> Any:
    """Serve a prompt. Return its outcomes."""
    request = make_request(name, tokens)
    hit, num_hit = manager.get_computed_blocks(request)[:2]
    assert manager.allocate_slots(request, len(tokens) - num_hit, num_hit, hit) is not None
    request.num_computed_tokens = len(tokens)
    manager.free(request)
    [(served, outcomes)] = manager.engine.take_outcomes()
    assert served == request.request_id
    return outcomes


@pytest.mark.parametrize("model", MODELS)
def test_traffic_decides_the_same_and_outcomes_sum_to_prompts(model: str) -> None:
    plain: Any = make_manager(**MODELS[model])
    observed: Any = make_manager(**MODELS[model])
    assert native_class() in type(observed).__mro__
    observed.engine.observe_outcomes(per_request=True)
    assert traffic(plain) == traffic(observed)
    taken = [counts for _, counts in observed.engine.take_outcomes()]
    assert taken
    totals = [sum(counts) for counts in zip(*taken, strict=True)]
    assert list(observed.engine.outcome_report().outcomes.values()) == totals


def test_a_repeated_prompt_hits_and_a_preempted_one_does_not_count() -> None:
    manager: Any = make_manager()
    manager.engine.observe_outcomes(per_request=True)
    tokens = list(range(7_000_000, 7_000_096))
    assert serve(manager, "a", tokens) == (0, 0, 0, 96, 0, 0, 0, 0, 0, 0)
    assert serve(manager, "b", tokens) == (80, 0, 0, 0, 15, 0, 0, 0, 0, 1)
    request = make_request("c", tokens)
    request.num_preemptions = 1
    assert manager.allocate_slots(request, 96) is not None
    assert manager.engine.take_outcomes() == []
