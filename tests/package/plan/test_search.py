"""Tests that the search picks the cheapest candidate, and leaves out only candidates that cannot
matter."""

import random
from collections.abc import Callable, Sequence

import pytest
from kvoxide._core import HostMemory, SimulationResult, Trace
from kvoxide.lab.plan.candidate import Candidate, candidates
from kvoxide.lab.plan.search import Found, Search, search_cheapest
from kvoxide.lab.plan.spare_capacity import has_spare_capacity, has_spare_host_memory
from kvoxide.lab.plan.target import parse_targets
from kvoxide.lab.plan.verdict import cheapest, ranked
from kvoxide.lab.replay.input import Host, parse_groups, parse_policy
from kvoxide.lab.replay.run import Incomplete, Run, SharedTrace, Workload
from kvoxide.lab.replay.run.execution.interface import Outcomes
from kvoxide.lab.replay.run.execution.local import Local
from kvoxide.lab.replay.serving import parse_router
from kvoxide.lab.replay.setup import TimeOptions

from tests.testing.traces import prompt

POOLS = [(blocks * 2**20, blocks) for blocks in (70, 140, 280, 2000, 4000)]
ROUTERS = [(name, parse_router(name)) for name in ("round-robin", "prefix", "scored")]
POLICIES = [parse_policy(text) for text in ("vllm", "fifo", "pin", "adaptive")]
FULL = TimeOptions("full", None, None, None)
HOSTS = [
    Host(f"{num_chunks} {policy}", HostMemory(num_chunks, 4096, eviction_policy=policy))
    for num_chunks in (50, 300, 3000, 9000)
    for policy in ("lru", "arc", "adaptive")
]


def trace_of(seed: int, num_requests: int = 60) -> Trace:
    """Return conversations that come back and grow."""
    draw = random.Random(seed)
    trace = Trace()
    for _ in range(num_requests):
        tokens = list(prompt(draw.randrange(8), draw.randrange(50, 700)))
        trace.push_prompt(tokens, draw.randrange(1, 30))
    return trace


def search_of(seed: int, *targets: str, plays_all: bool = False) -> Search:
    workload = Workload(SharedTrace.of(trace_of(seed)), parse_groups("full:16").specs, 8, 512)
    options = candidates(POOLS, [1, 2, 4], ROUTERS, POLICIES, gpus_per_instance=2)
    return Search(options, parse_targets(targets), workload, FULL, plays_all)


def search_with_hosts(seed: int, *targets: str, groups: str = "full:16") -> Search:
    workload = Workload(SharedTrace.of(trace_of(seed, 40)), parse_groups(groups).specs, 8, 512)
    options = candidates(
        [(blocks, blocks) for blocks in (200, 700, 4000, 6000)],
        [1, 2],
        ROUTERS[:1],
        POLICIES[::3],
        gpus_per_instance=1,
        hosts=[None, *HOSTS],
    )
    return Search(options, parse_targets(targets), workload, FULL)


class Backwards:
    """Does runs one after the other, from the last to the first."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def outcomes(
        self,
        runs: Sequence[Run],
        on_progress: Callable[[int], None],
        is_wanted: Callable[[int], bool] = lambda _: True,
    ) -> Outcomes:
        for at in reversed(range(len(runs))):
            if is_wanted(at):
                self.done.append(at)
                for _, outcome in Local().outcomes([runs[at]], on_progress):
                    yield at, outcome


def found(search: Search) -> Found:
    return search_cheapest(search, search.runs(), Local(), lambda _: None)


def told(found: Found) -> list[tuple[Candidate, list[float | None], Candidate | None]]:
    return [(v.candidate, v.figures, v.same_as) for v in ranked(found.verdicts)]


def test_candidates_come_by_gpus_and_then_by_memory() -> None:
    options = candidates(POOLS, [1, 2], ROUTERS, POLICIES, gpus_per_instance=2)
    assert len(options) == len(POOLS) * (1 + 3) * len(POLICIES)
    assert [c.cost for c in options] == sorted(c.cost for c in options)
    assert {(c.instances, c.gpus) for c in options} == {(1, 2), (2, 4)}
    assert {c.router for c in options if c.instances == 1} == {"-"}
    assert options[0].title == "1 instance, 0.07 GiB on each GPU, vllm"


@pytest.mark.parametrize("seed", range(6))
def test_the_cheapest_is_that_of_all_combinations(seed: int) -> None:
    everything = found(search_of(seed, "hit_share>1%", plays_all=True))
    shares = sorted(v.figures[0] or 0.0 for v in everything.verdicts)
    for rank in (0.1, 0.5, 0.9, 0.99):
        target = f"hit_share>={shares[int(rank * len(shares))]}"
        expected = [v for v in everything.verdicts if (v.figures[0] or 0) >= float(target[11:])]
        least = min(v.candidate.cost for v in expected)
        search = search_of(seed, target)
        by_cost = found(search)
        best = [v.candidate.title for v in cheapest(by_cost.verdicts)]
        assert sorted(best) == sorted(
            v.candidate.title for v in expected if v.candidate.cost == least
        )
        assert [v.candidate for v in by_cost.verdicts] == [
            candidate for candidate in search.candidates if candidate.cost <= least
        ]


def test_what_is_found_does_not_depend_on_the_order_of_the_runs() -> None:
    for target in ("hit_share>60%", "hit_share>99%", "throughput>100"):
        backwards = Backwards()
        search = search_of(3, target)
        last_first = search_cheapest(search, search.runs(), backwards, lambda _: None)
        assert told(last_first) == told(found(search_of(3, target)))
    for target in ("hit_share>40%", "hit_share>99%"):
        search = search_with_hosts(3, target)
        last_first = search_cheapest(search, search.runs(), Backwards(), lambda _: None)
        assert told(last_first) == told(found(search_with_hosts(3, target)))


def test_what_costs_more_than_the_cheapest_is_not_played() -> None:
    search, local = search_of(1, "throughput>1"), Local()
    started: list[int] = []

    class Counting:
        def outcomes(
            self,
            runs: Sequence[Run],
            on_progress: Callable[[int], None],
            is_wanted: Callable[[int], bool] = lambda _: True,
        ) -> Outcomes:
            def start_if_wanted(at: int) -> bool:
                if is_wanted(at):
                    started.append(at)
                return at in started

            return local.outcomes(runs, on_progress, start_if_wanted)

    result = search_cheapest(search, search.runs(), Counting(), lambda _: None)
    # These are all candidates of the first cost, and runs that other cores had begun before one of
    # them was known.
    assert len(result.verdicts) == len(POLICIES)
    assert len(started) < len(search.candidates) / 2


def test_nothing_meets_the_targets() -> None:
    search = search_of(2, "ttft_p99<1us", "hit_share>=10%")
    result = found(search)
    assert len(result.verdicts) == len(search.candidates)
    assert cheapest(result.verdicts) == []
    worst = [v.worst_margin for v in ranked(result.verdicts)]
    assert worst == sorted(worst, reverse=True)


class Failing:
    """Fails after this number of runs."""

    def __init__(self, num_runs: int) -> None:
        self.num_runs = num_runs

    def outcomes(
        self,
        runs: Sequence[Run],
        on_progress: Callable[[int], None],
        is_wanted: Callable[[int], bool] = lambda _: True,
    ) -> Outcomes:
        yield from Local().outcomes(runs[: self.num_runs], on_progress, is_wanted)
        raise Incomplete("the cluster has gone")


def test_what_was_played_before_a_failure_is_told() -> None:
    search = search_of(4, "ttft_p99<1us")
    result = search_cheapest(search, search.runs(), Failing(7), lambda _: None)
    assert str(result.failure) == "the cluster has gone"
    assert [v.candidate for v in result.verdicts] == list(search.candidates[:7])
    with pytest.raises(Incomplete, match="the cluster has gone"):
        search_cheapest(search, search.runs(), Failing(0), lambda _: None)


def figures(result: SimulationResult) -> str:
    assert result.serving is not None
    total = result.serving.total
    names = [name for name in dir(total) if not name.startswith("_")]
    return repr(
        (
            [getattr(total, name) for name in names],
            result.per_request.tolist(),
            result.loaded_tokens,
            result.serving.moments.tolist(),
            result.serving.instance_of.tolist(),
        )
    )


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("groups", ["full:16", "full:16,swa:16:64*2", "mamba:64*2,full:64"])
def test_a_pool_with_room_to_spare_stands_for_every_larger_one(seed: int, groups: str) -> None:
    workload = Workload(SharedTrace.of(trace_of(seed, 25)), parse_groups(groups).specs, 8, 512)
    pools = [(blocks, blocks) for blocks in (300, 700, 1200, 2500)]
    options = candidates(pools, [1, 3], ROUTERS, POLICIES, gpus_per_instance=1)
    search = Search(options, (), workload, FULL)
    with_room = 0
    results = dict(Local().outcomes(search.runs(), lambda _: None))
    for at, candidate in enumerate(options):
        if has_spare_capacity(candidate, results[at].result, workload):
            with_room += 1
            larger = [
                other
                for other, option in enumerate(options)
                if option.but_memory == candidate.but_memory and option.memory > candidate.memory
            ]
            for other in larger:
                assert figures(results[other].result) == figures(results[at].result)
    assert with_room


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("groups", ["full:16", "full:16,swa:16:64*2", "mamba:64*2,full:64"])
def test_memories_with_room_to_spare_stand_for_every_larger_one(seed: int, groups: str) -> None:
    search = search_with_hosts(seed, groups=groups)
    options, workload = search.candidates, search.workload
    results = dict(Local().outcomes(search.runs(), lambda _: None))
    num_equal = {"pool": 0, "host": 0}
    for at, option in enumerate(options):
        of_pool = has_spare_capacity(option, results[at].result, workload)
        of_host = has_spare_host_memory(option, results[at].result)
        for other, larger in enumerate(options):
            has_other_pool = (
                larger.but_memory == option.but_memory and larger.memory > option.memory
            )
            has_other_host = (
                larger.but_host_memory == option.but_host_memory
                and larger.host_bytes > option.host_bytes
            )
            if (of_pool and has_other_pool) or (of_host and has_other_host):
                num_equal["pool" if has_other_pool else "host"] += 1
                assert figures(results[other].result) == figures(results[at].result)
    assert all(num_equal.values())
