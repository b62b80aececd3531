"""Tests calls of vLLM's offloading connector that no scheduler makes, and values that none has.
kvoxide's connector must answer as vLLM's and then have the same state, or raise the same class of
exception."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kvoxide.vllm.plugin import entry_point as plugin
from kvoxide.vllm.shadow.host import comparable_form
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

from tests.proof.connector.memory import Prefixes
from tests.proof.connector.observed import HOOKS, plain_state
from tests.proof.connector.scenario import Scenario
from tests.proof.connector.world import World

Call = Callable[[World], Any]


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_HOST", "auto")
    plugin.register()


def running(world: World) -> Any:
    return world.scheduler.requests["running"]


def stranger(world: World) -> Any:
    sampling = SamplingParams(max_tokens=3)
    return Request("stranger", list(range(200)), sampling, None, block_hasher=world._hasher)


def announced(world: World, **values: Any) -> Any:
    """Return a request like one that ended, with chunks in the tier, and with other values."""
    tokens = list(range(300)) + [1] * 20
    request = Request("new", tokens, SamplingParams(max_tokens=3), None, block_hasher=world._hasher)
    request.kv_transfer_params = values.pop("kv_transfer_params", None)
    world.connectors[0].on_new_request(request)
    for name, value in values.items():
        setattr(request, name, value)
    return request


def matched(world: World, num_computed_tokens: int = 0, **values: Any) -> Any:
    request = announced(world, **values)
    return world.connectors[0].get_num_new_matched_tokens(request, num_computed_tokens)


def with_params(**params: Any) -> Call:
    return lambda world: matched(world, kv_transfer_params=params)


def table(world: World, *ids: list[int]) -> Any:
    blocks = world.scheduler.kv_cache_manager.block_pool.blocks
    return KVCacheBlocks(tuple([blocks[block_id] for block_id in group] for group in ids))


def loaded(blocks: Callable[[World], Any], num_tokens: int, num_computed: int = 0) -> Call:
    """Load ``num_tokens`` into ``blocks`` after a look-up."""

    def call(world: World) -> Any:
        request = announced(world)
        world.connectors[0].get_num_new_matched_tokens(request, num_computed)
        return world.connectors[0].update_state_after_alloc(request, blocks(world), num_tokens)

    return call


def reported(**jobs: int) -> Call:
    """Report from the workers this many completions of the jobs with these names."""

    def call(world: World) -> Any:
        named = {"unknown": 10**6, "ended": 0, "pending": max(world.connectors[0]._jobs, default=0)}
        report = OffloadingWorkerMetadata()
        report.completed_jobs.update({named[name]: count for name, count in jobs.items()})
        output = KVConnectorOutput(kv_connector_worker_meta=report)
        return world.connectors[0].update_connector_output(output)

    return call


def scheduled(**changes: Any) -> Call:
    """Return a step's output with other values."""

    def call(world: World) -> Any:
        output = world.scheduler.schedule()
        for name, value in changes.items():
            setattr(output, name, value)
        return world.connectors[0].build_connector_meta(output)

    return call


def cached(names: list[str], ids: Any) -> Any:
    """Return requests that continue in a step, with the blocks that they got."""
    return SimpleNamespace(
        req_ids=names, new_block_ids=ids, resumed_req_ids=set(), num_computed_tokens=[320]
    )


_CAPS: tuple[Any, ...] = (True, -1, 0, 1.5, "8", None, [], 10**30)
PARAMS: dict[str, tuple[Any, ...]] = {
    "max_load_tokens": _CAPS,
    "max_offload_tokens": _CAPS,
    "kv_load_tiers": (True, "CPU", ["disk"], [7], {}, [[]]),
}

CALLS: dict[str, Call] = {
    "look-up of a stranger": lambda w: w.connectors[0].get_num_new_matched_tokens(stranger(w), 0),
    "load of a stranger": lambda w: w.connectors[0].update_state_after_alloc(
        stranger(w), table(w, [1]), 16
    ),
    "sources of a stranger": lambda w: w.connectors[0].get_external_cache_hit_sources(
        stranger(w), 16
    ),
    "end of a stranger": lambda w: w.connectors[0].request_finished(stranger(w)),
    "announced twice": lambda w: w.connectors[0].on_new_request(running(w)),
    "ended twice": lambda w: [w.connectors[0].request_finished(running(w)) for _ in range(2)],
    "hashes that are no bytes": lambda w: matched(w, block_hashes=[7] * 20),
    "hashes that are text": lambda w: matched(w, block_hashes=["text"] * 20),
    "hashes of another length": lambda w: matched(w, block_hashes=[bytes(16)] * 20),
    "hashes that are too long": lambda w: matched(w, block_hashes=[bytes(40)] * 20),
    "hashes in a tuple": lambda w: matched(w, block_hashes=(bytes(32),) * 20),
    "hashes that are none": lambda w: matched(w, block_hashes=[]),
    "hashes that are no list": lambda w: matched(w, block_hashes=None),
    "computed tokens inside a block": lambda w: matched(w, 7),
    "computed tokens beyond the prompt": lambda w: matched(w, 10**6),
    "computed tokens below 0": lambda w: matched(w, -16),
    "load that starts inside a block": loaded(lambda w: table(w, [1, 2, 3]), 16, 7),
    "load without blocks": loaded(lambda w: table(w, []), 64),
    "load into too few blocks": loaded(lambda w: table(w, [1]), 64),
    "load into no group": loaded(lambda w: table(w), 64),
    "load into the null block": loaded(lambda w: table(w, [0, 0, 0, 0]), 64),
    "load of more than was offered": loaded(lambda w: table(w, list(range(1, 60))), 900),
    "load of fewer tokens than none": loaded(lambda w: table(w, [1]), -16),
    "load of part of a block": loaded(lambda w: table(w, [50]), 7),
    "load without an offer": lambda w: w.connectors[0].update_state_after_alloc(
        announced(w), table(w, [50, 51]), 32
    ),
    "unknown job": reported(unknown=1),
    "job of long ago": reported(ended=1),
    "job reported no time": reported(pending=0),
    "job reported too often": reported(pending=5),
    "reset inside a step": lambda w: (
        loaded(lambda w: table(w, [50, 51, 52, 53]), 64)(w),
        w.connectors[0].reset_cache(),
    ),
    "step of a stranger": scheduled(num_scheduled_tokens={"stranger": 4}),
    "step of a stranger's blocks": scheduled(scheduled_cached_reqs=cached(["stranger"], [([5],)])),
    "step with ids below 0": scheduled(scheduled_cached_reqs=cached(["running"], [([-5],)])),
    "step with ids beyond counting": scheduled(
        scheduled_cached_reqs=cached(["running"], [([2**70],)])
    ),
    "step with ids of text": scheduled(scheduled_cached_reqs=cached(["running"], [(["a"],)])),
    "step with ids outside the pool": scheduled(
        scheduled_cached_reqs=cached(["running"], [([10**6],)])
    ),
    "step with ids twice": scheduled(scheduled_cached_reqs=cached(["running"], [([50, 50],)])),
    "step of too many groups": scheduled(
        scheduled_cached_reqs=cached(["running"], [([50], [51], [52])])
    ),
    "step of no group": scheduled(scheduled_cached_reqs=cached(["running"], [()])),
    "step that ends a stranger": scheduled(finished_req_ids={"stranger"}),
    "step that preempts a stranger": scheduled(preempted_req_ids={"stranger"}),
    "step that ends who goes on": scheduled(finished_req_ids={"running"}),
    **{
        f"{name}={value!r}": with_params(**{name: value})
        for name, values in PARAMS.items()
        for value in values
    },
}


# vLLM's connector accepts these.
REFUSED = {
    "hashes of another length": ValueError,
    "hashes that are too long": ValueError,
    "step with ids below 0": OverflowError,
    "step with ids beyond counting": OverflowError,
    "step with ids of text": TypeError,
}


def outcome(call: Call, world: World) -> Any:
    try:
        answer = call(world)
    except Exception as error:
        return next(cls for cls in type(error).__mro__ if cls.__module__ == "builtins")
    return repr(answer) if isinstance(answer, tuple | dict | bool | None) else None


def served(is_ours: bool) -> World:
    """Return a world in which one request ended, one runs, and stores are in progress."""
    scenario = replace(
        Scenario.draw(0),
        tier="kvoxide's",
        over_kvoxide=True,
        eagle_group=None,
        num_blocks=160,
        num_chunks=100,
        interval=None,
        extra={"eviction_policy": "lru", "offload_prompt_only": False},
        is_async=False,
        has_events=False,
        has_gpu_hits=True,
        ranks=1,
        children=1,
        defers_loads=False,
        reuses_ids=False,
        tokens_per_step=96,
    )
    world = World(scenario, Prefixes(), is_ours)
    world.add(name="ended", tokens=list(range(300)), params=None, max_tokens=2)
    for _ in range(14):
        world.step()
    world.add(name="running", tokens=list(range(1000, 1300)), params=None, max_tokens=60)
    for _ in range(4):
        world.step()
    while not world.connectors[0]._jobs:
        world.step()
    assert list(world.scheduler.requests) == ["running"]
    for name in HOOKS:
        del vars(world.connectors[0])[name]  # nothing watches
    return world


def state_of(world: World) -> dict[str, Any]:
    state = plain_state(world.connectors[0], num_blocks=1_000)
    state["_step_region"] = state.get("_step_region") is not None
    state["_current_batch_load_jobs"] = comparable_form(state["_current_batch_load_jobs"])
    return state


@pytest.mark.parametrize("name", CALLS)
def test_kvoxides_connector_answers_as_vllms(name: str) -> None:
    sides = [served(is_ours) for is_ours in (False, True)]
    told = [outcome(CALLS[name], side) for side in sides]
    if name in REFUSED:
        assert told[1] is REFUSED[name]
        assert not isinstance(told[0], type)
        return
    assert told[0] == told[1]
    if isinstance(told[0], type):
        return  # vLLM's has done half of the work, and is not used further
    states = [state_of(side) for side in sides]
    for field in states[0]:
        assert states[0][field] == states[1][field], field
