"""The search for each kind of fault: how many calls or steps it took, and what showed the fault."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvoxide.lab.verify.schedulers.twins import Difference
from kvoxide.lab.verify.suite import HarnessError
from kvoxide.lab.verify.verification import Verification

from ..connector.comparison import Comparison
from ..connector.scenario import Scenario
from ..sameness.host.playing import DifferenceFound, play_random
from ..sameness.host.scenario import random_scenario
from . import faults, host_connector, host_tier
from .fault import Fault

STEPS_PER_RUN = 200


class Sight(NamedTuple):
    """The result of a search. ``what`` is None if the fault was not found."""

    num_calls: int
    what: str | None


def by_verification(fault: Fault, seed: int, seconds: float) -> Sight:
    """Search with ``kvoxide verify``."""
    run = Verification(seed)
    with fault.planted():
        try:
            found = run.run(seconds)
        except HarnessError as error:
            return Sight(run.num_calls, f"does not fit: {error}")
    return Sight(run.num_calls, None if found is None else found.call)


def by_calls(fault: Fault, seed: int, seconds: float) -> Sight:
    """Search by comparing the host tiers call by call."""
    num_calls = 0
    with fault.planted():
        for each in _seeds(seed, seconds):
            try:
                num_calls += play_random(random_scenario(each)).total()
            except DifferenceFound as found:
                return Sight(num_calls + len(found.recording.operations), str(found))
    return Sight(num_calls, None)


# The runs in which some faults of the connector can be found, or are found soon.
WANTED: dict[str, Callable[[Scenario], bool]] = {
    "later_keeps_cursors": lambda scenario: scenario.ranks > 1,
    "later_outlives_a_shorter_hit": lambda scenario: scenario.has_windows,
    "smallest_window_first": lambda scenario: scenario.layout == "windows",
    "loads_within_a_step_leave_others_being_loaded": lambda scenario: (
        "sync_load_budget_bytes" in scenario.extra
    ),
    "loads_are_waited_for_without_prefix_caching": lambda scenario: not scenario.has_gpu_hits,
    "boundary_keys_have_no_position": lambda scenario: scenario.has_finer_hashes,
    "rswa_is_a_window": lambda scenario: scenario.layout == "R-SWA",
    "cursors_move_whatever_the_policy": lambda scenario: scenario.tier == "fickle",
    "states_are_stored_last": lambda scenario: "states" in scenario.layout,
    "tails_of_requests_that_store_nothing_are_not_stored": lambda scenario: (
        scenario.has_finer_hashes
    ),
    "eagle_needs_no_more": lambda scenario: bool(scenario.eagle_group) and scenario.has_windows,
    "windows_are_not_widened": lambda scenario: scenario.layout == "lagging window",
    "masks_know_one_rank": lambda scenario: scenario.layout == "context parallel windows",
    "new_loads_of_what_was_preempted_are_flushed": lambda scenario: scenario.resets > 0,
    "one_report_ends_a_job": lambda scenario: scenario.ranks > 1,
    "flushes_are_cleared_in_place": lambda scenario: scenario.is_async,
    "stored_keys_are_told_in_their_order": lambda scenario: scenario.has_events,
    "ended_requests_may_use_new_keys": lambda scenario: (
        scenario.reuses_ids and scenario.tier != "fickle"
    ),
}


def by_steps(fault: Fault, seed: int, seconds: float) -> Sight:
    """Search by comparing the offloading connectors step by step, in runs that use the part with
    the fault."""
    num_steps, is_wanted = 0, WANTED.get(fault.name)
    with fault.planted():
        for each in _seeds(seed, seconds):
            scenario = Scenario.draw(each)
            if is_wanted is not None and not is_wanted(scenario):
                continue
            comparison = Comparison(scenario)
            try:
                comparison.run(STEPS_PER_RUN)
            except Difference as found:
                return Sight(num_steps + comparison.num_steps, str(found))
            num_steps += comparison.num_steps
    return Sight(num_steps, None)


def _seeds(first: int, seconds: float) -> Iterator[int]:
    end = time.process_time() + seconds
    return itertools.takewhile(lambda _: time.process_time() < end, itertools.count(first))


Look = Callable[[Fault, int, float], Sight]

# The faults of each kind, and the search for them.
KINDS: tuple[tuple[dict[str, Fault], Look], ...] = (
    (faults.FAULTS, by_verification),
    (host_tier.FAULTS, by_calls),
    (host_connector.FAULTS, by_steps),
)
LOOKS = {name: look for named, look in KINDS for name in named}
FAULTS = {name: fault for named, _ in KINDS for name, fault in named.items()}
