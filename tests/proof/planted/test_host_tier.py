"""Tests that the comparison with kvoxide's finds every error in vLLM's host tier and connector. The
simulated workers alone also find errors that lose bytes."""

import pytest

from ..sameness import vllm_required  # noqa: F401  isort: skip

from ..connector.memory import Prefixes, WrongBytesError
from ..connector.scenario import Scenario
from ..connector.traffic import Traffic
from ..connector.world import World
from . import host_connector, host_tier
from .looks import FAULTS, LOOKS

SECONDS = 60.0
SOON_SEEN = (
    "pending_chunks_end_a_prefix",
    "last_token_is_never_computed",
    "boundary_keys_have_no_position",
    "hashed_blocks_are_never_loaded",
    "cursors_move_whatever_the_policy",
    "refused_offers_are_not_made_again",
    "states_are_stored_last",
    "windows_are_not_widened",
    "one_report_ends_a_job",
    "jobs_cannot_be_taken_out",
)
# Maps an error to the seed of a run in which no block may have wrong content.
LOSING_BYTES = {
    "what_is_taken_anew_is_not_flushed": 5,
    "hashed_blocks_are_never_loaded": 0,
    "flushes_are_cleared_in_place": 17,
}
# Maps an error to the seed of a run that shows it. From seed 0 on, it takes seconds.
SOONER = {
    "freed_ids_are_copied_backwards": 45,
    "pending_chunks_end_a_prefix": 6,
    "what_was_used_again_goes_last": 7,
}
NUM_STEPS = 150


@pytest.mark.parametrize("name", [*host_tier.FAULTS, *SOON_SEEN])
def test_fault_is_seen(name: str) -> None:
    assert LOOKS[name](FAULTS[name], SOONER.get(name, 0), SECONDS).what is not None


@pytest.mark.long
@pytest.mark.parametrize("name", host_connector.FAULTS)
def test_every_fault_of_the_connector_is_seen(name: str) -> None:
    test_fault_is_seen(name)


@pytest.mark.parametrize("name", LOSING_BYTES)
def test_lost_bytes_are_seen_without_a_comparison(name: str) -> None:
    scenario = Scenario.draw(LOSING_BYTES[name])
    assert not scenario.may_load_wrong_bytes
    with FAULTS[name].planted(), pytest.raises(WrongBytesError):
        _run_alone(scenario)
    _run_alone(scenario)


def _run_alone(scenario: Scenario) -> None:
    side, traffic = World(scenario, Prefixes(), is_ours=False), Traffic(scenario)
    for _ in range(NUM_STEPS):
        for happens in traffic.draw(side):
            happens(side)
        side.step()
