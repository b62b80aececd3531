"""Tests that random calls of vLLM's manager of several tiers have no difference over vLLM's primary
tier and over kvoxide's. ``python -m tests.proof.sameness --against tiering`` makes many more."""

from typing import Any

import pytest

from . import vllm_required  # isort: skip

from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager

from .host.playing import DifferenceFound, play_random, play_recorded, shrunk
from .tiering import TIERING
from .tiering.scenario import TieringScenario

CALLS = 1_000


@pytest.mark.parametrize("seed", range(8))
def test_same_under_random_traffic(seed: int) -> None:
    try:
        play_random(TIERING.random_scenario(seed), CALLS, TIERING)
    except DifferenceFound as found:
        pytest.fail(f"beside vLLM {vllm_required.RELEASE}:\n{shrunk(found).text()}")


def test_a_read_that_counts_as_a_use_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare_read(self: Any, keys: Any, req_context: Any) -> Any:
        return self.prepare_load(keys, req_context)

    monkeypatch.setattr(CPUPrimaryTierOffloadingManager, "prepare_read", prepare_read)
    with pytest.raises(DifferenceFound) as caught:
        play_random(TieringScenario("arc", num_chunks=20, num_tiers=1), 1_000, TIERING)
    recording = caught.value.recording
    assert play_recorded(recording) is not None
    monkeypatch.undo()
    assert play_recorded(recording) is None
