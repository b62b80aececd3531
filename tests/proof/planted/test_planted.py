"""Tests that a verification finds each error planted in vLLM's code, and nothing without an
error."""

import pytest

from ..sameness import vllm_required  # isort: skip

from kvoxide.lab.verify.managers.runner import Sides, play_random
from kvoxide.lab.verify.managers.scenarios import FAMILIES
from kvoxide.lab.verify.managers.sides import VllmDriver
from kvoxide.lab.verify.schedulers.suite import Schedulers
from kvoxide.lab.verify.suite import FirstDifference
from kvoxide.lab.verify.verification import SUITES, Verification

from .faults import FAULTS

SEED = 1
# Maps a fault to a seed whose first scenarios show it. With SEED, it takes seconds.
SOONER = {"chunk_of_one_block_more": 8, "window_a_token_longer": 2}
SECONDS = 60.0
FEW_OPERATIONS = 40
SHRUNK = ("hits_one_block_less", "taken_in_reverse", "parent_not_hashed")
SOON_SEEN = (
    "zeroes_in_reverse",
    "groups_hit_a_block_less",
    "evictable_hits_cost_nothing",
    "full_attention_not_cached",
    "window_a_token_longer",
    "chunk_of_one_block_more",
    "rswa_ignores_the_prompt",
    "ring_given_anew_at_each_load",
    "cross_attention_needs_a_block_more",
    "hits_in_the_same_step",
    "usage_of_one_block_more",
    "newest_of_equal_blocks",
    "removals_not_told",
)


def seen(name: str) -> tuple[FirstDifference, Verification]:
    run = Verification(SOONER.get(name, SEED))
    with FAULTS[name].planted():
        found = run.run(SECONDS)
    assert found is not None
    return found, run


def test_every_area_is_among_those_soon_seen() -> None:
    areas = {FAULTS[name].area for name in (*SHRUNK, *SOON_SEEN)}
    assert {fault.area for fault in FAULTS.values()} == areas, vllm_required.RELEASE


@pytest.mark.parametrize("name", SOON_SEEN)
def test_a_fault_is_seen(name: str) -> None:
    seen(name)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_seen(name: str) -> None:
    seen(name)


@pytest.mark.parametrize("name", SHRUNK)
def test_a_difference_is_shrunk_and_played_again(name: str) -> None:
    with FAULTS[name].planted():
        found = Verification(SEED).run(SECONDS)
        assert found is not None
        suite = SUITES[found.document["part"]]
        shrunk = suite.shrunk(found)
        again = suite.play_again(shrunk.document)
    assert again is not None
    assert (again.call, again.vllm, again.kvoxide) == (shrunk.call, shrunk.vllm, shrunk.kvoxide)
    assert len(shrunk.document.get("operations", [])) <= FEW_OPERATIONS
    assert suite.play_again(shrunk.document) is None


def test_schedulers_alone_see_a_fault_and_play_it_again() -> None:
    suite = Schedulers()
    with FAULTS["caches_one_token_late"].planted():
        found = first_difference(suite)
        again = suite.play_again(found.document)
        assert again is not None
        assert again.document == found.document
    assert suite.play_again(found.document) is None


def first_difference(suite: Schedulers) -> FirstDifference:
    for seed in range(20):
        try:
            suite.play(seed, "attention")
        except FirstDifference as found:
            return found
    raise AssertionError("no difference was seen")


@pytest.mark.parametrize("family", FAMILIES)
def test_vllm_is_the_same_as_itself(family: str) -> None:
    sides = Sides(VllmDriver, VllmDriver)
    assert play_random(0, sides, 600, families=(family,)).num_calls >= 600
