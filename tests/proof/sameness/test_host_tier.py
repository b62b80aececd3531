"""Tests that 60,000 random calls of vLLM's host tier and of kvoxide's have no difference. A planted
difference is found, and shrunk to a few calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from . import vllm_required  # isort: skip

from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from .host.playing import DifferenceFound, Recording, play_random, play_recorded, shrunk
from .host.scenario import Scenario, random_scenario

SCENARIOS_PER_TEST = 4
FOUND_BEFORE = sorted((Path(__file__).parent / "host/differences").glob("*.json"))


@pytest.mark.parametrize("part", range(10))
def test_same_under_random_traffic(part: int) -> None:
    for seed in range(part * SCENARIOS_PER_TEST, (part + 1) * SCENARIOS_PER_TEST):
        try:
            play_random(random_scenario(seed))
        except DifferenceFound as found:
            pytest.fail(f"beside vLLM {vllm_required.RELEASE}:\n{shrunk(found).text()}")


@pytest.mark.parametrize("path", FOUND_BEFORE, ids=lambda path: path.stem)
def test_difference_found_before(path: Path) -> None:
    recording = Recording.from_json(path.read_text(encoding="utf-8"))
    difference = play_recorded(recording)
    if difference is not None:
        pytest.fail(recording.to_json(difference))


def test_a_difference_is_found_and_shrunk_to_what_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def touch(self: Any, keys: Any, req_context: Any) -> None:
        self._update_recency(list(keys))

    monkeypatch.setattr(LRUCachePolicy, "touch", touch)
    with pytest.raises(DifferenceFound) as caught:
        play_random(Scenario(num_chunks=20))
    text = shrunk(caught.value).text()
    document = json.loads(text)
    assert document["aspect"] == "order"
    called = [operation["operation"] for operation in document["operations"]]
    assert sorted(called) == ["CompleteStore", "PrepareStore", "Start", "Touch"]
    recording = Recording.from_json(text)
    assert play_recorded(recording) is not None
    monkeypatch.undo()
    assert play_recorded(recording) is None
