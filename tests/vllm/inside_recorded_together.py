"""Tests that a replay of a server whose GPU and CPU memory decide together counts what the server
counted. tests/run.sh long recordings makes many more."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kvoxide.vllm.recording import hooks
from kvoxide.vllm.recording.offloading import Transfers
from kvoxide.vllm.recording.recorder import Recorder

from tests.proof.recorded.together import COUNTED, recordable, replayed, serve
from tests.vllm.recorded_world import all_lines

NUM_STEPS = 150
SEEDS = (4, 6, 9, 11, 13, 17, 39, 52, 54)
# Replays of these servers differed once: seed, number of steps, chance of a reset.
ONCE_DIFFERENT = ((49, 200, None), (207, 250, 0.05), (524, 200, 0.05), (717, 200, 0.05))
HEADER = {"kvoxide_recording": 2, "tokens_per_id": 16, "started": 0.0, "rank": 0}
# The output of a scheduler in whose step nothing runs.
EMPTY = SimpleNamespace(
    total_num_scheduled_tokens=0,
    num_scheduled_tokens={},
    scheduled_new_reqs=[],
    scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[]),
    scheduled_spec_decode_tokens={},
    finished_req_ids=set(),
)


def test_the_servers_differ() -> None:
    servers = [recordable(seed) for seed in SEEDS]
    assert len({scenario.layout for scenario, _ in servers}) >= 6
    assert any(scenario.is_async for scenario, _ in servers)
    assert any(scenario.resets for scenario, _ in servers)
    assert {wanted.retention for _, wanted in servers} == {"standard", "adaptive"}


@pytest.mark.parametrize(
    ("seed", "num_steps", "resets"),
    [*((seed, NUM_STEPS, None) for seed in SEEDS), *ONCE_DIFFERENT],
)
def test_a_replay_counts_what_the_server_counted(
    seed: int, num_steps: int, resets: float | None, tmp_path: Path
) -> None:
    counts = serve(seed, tmp_path / "recorded", num_steps, resets)
    assert replayed(tmp_path / "recorded", tmp_path) == {name: counts[name] for name in COUNTED}


def loading(**jobs: int) -> Any:
    """Return the output of a scheduler in whose step requests begin to load."""
    load_jobs = {job: SimpleNamespace(req_id=name) for name, job in jobs.items()}
    metadata = SimpleNamespace(load_jobs=load_jobs, store_jobs={})
    return SimpleNamespace(kv_connector_metadata=metadata, finished_req_ids=())


def reporting(*jobs: int, received: tuple[str, ...] = ()) -> Any:
    """Return the output of a model runner whose workers report the ends of jobs."""
    metadata = SimpleNamespace(completed_jobs=dict.fromkeys(jobs, 1))
    return SimpleNamespace(
        kv_connector_output=SimpleNamespace(
            kv_connector_worker_meta=metadata, finished_recving=set(received)
        )
    )


def connector_with(*jobs: int) -> Any:
    return SimpleNamespace(connector_scheduler=SimpleNamespace(_jobs=set(jobs)))


def test_transfers_end_in_the_order_of_the_report() -> None:
    transfers = Transfers()
    transfers.begin(loading(a=1, b=2, c=3), None)
    transfers.note_completed(reporting(2, 1))
    assert transfers.take_ended(connector_with(3)) == [2, 1]
    transfers.note_completed(reporting(3))
    assert transfers.take_ended(connector_with()) == [3]


def test_a_load_from_before_a_reset_ends_when_its_request_continues() -> None:
    transfers = Transfers()
    transfers.begin(loading(a=1, b=2), None)
    transfers.reset()
    transfers.note_completed(reporting(2))
    assert transfers.take_ended(connector_with()) == []
    transfers.note_completed(reporting(1, received=("a",)))
    assert transfers.take_ended(connector_with()) == [1]


@pytest.mark.parametrize("connector", [None, connector_with()])
def test_the_first_of_equal_steps_without_tokens_is_recorded(
    connector: Any, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path, HEADER)
    for _ in range(3):
        recorder.step_scheduled(0.0, EMPTY, SimpleNamespace(connector=connector))
    recorder.close()
    schedules = [line["schedule"] for line in all_lines(tmp_path) if "schedule" in line]
    assert schedules == ([] if connector is None else [[1]])


@pytest.mark.parametrize(("num_free", "is_empty"), [(9, True), (8, False)])
def test_a_cache_with_blocks_in_use_is_not_empty(num_free: int, is_empty: bool) -> None:
    pool = SimpleNamespace(
        num_gpu_blocks=10,
        get_num_free_blocks=lambda: num_free,
        cached_block_hash_to_block={},
    )
    scheduler = SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=pool))
    assert hooks._has_empty_cache(scheduler) is is_empty


def test_a_request_that_never_ran_leaves_no_outcomes(tmp_path: Path) -> None:
    """The step has no new requests, but requests that wait for loads were admitted."""
    outcomes = [("a", (1,)), ("b", (1,))]
    recorder = Recorder(tmp_path, HEADER, take_outcomes=lambda: outcomes)
    recorder.step_scheduled(0.0, EMPTY, SimpleNamespace(connector=connector_with()))
    never_ran = SimpleNamespace(request_id="a", num_computed_tokens=0, num_preemptions=0)
    recorder.request_ends(never_ran)
    recorder.flush()
    assert recorder._outcomes == {"b": (1,)}
    recorder.close()
