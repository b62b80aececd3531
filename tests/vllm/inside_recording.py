"""Tests of ``KVOXIDE_RECORD``: the files contain a scheduler's steps, and a replay plays them."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.recorded_world import (
    SchedulerWorld,
    all_lines,
    closed,
    hit_tokens,
    hooks,
    ids,
    lines,
    plain,
    prompt,
    recorder_module,
)

# Import after the plugin.
from kvoxide.lab.replay.input import read_deployment  # isort: skip
from kvoxide.vllm.environment import releases, settings  # isort: skip

from tests.testing.small_world import window  # isort: skip

MODES = ("off", "auto", "require", "shadow")


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_is_recorded_in_every_mode(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = SchedulerWorld()
    first = world.serve("secret-a", prompt(1, 40), 30)
    world.serve("secret-b", [*first, *prompt(2, 10)], 1)
    world.serve("secret-c", prompt(1, 40), 1)
    assert len(first) == 70
    closed(world)
    a, b, c = lines(folder)
    # 69 tokens were computed: four blocks of 16. The third has 8 tokens of the prompt.
    assert (a["input_length"], a["output_length"]) == (40, 30)
    assert (a["hash_ids"], a["output_hash_ids"]) == ([0, 1, 2], [3])
    assert (b["input_length"], b["hash_ids"][:4], b["output_length"]) == (80, [0, 1, 2, 3], 1)
    assert (b["hash_ids"][4:], b["output_hash_ids"]) == ([4], [])
    assert (c["hash_ids"][:2], c["output_hash_ids"]) == ([0, 1], [])
    assert c["hash_ids"][2] not in ids(a) + ids(b)
    assert a["timestamp"] <= b["timestamp"] <= c["timestamp"] < 60_000
    assert {line["status"] for line in (a, b, c)} == {"length_capped"}
    assert world.hits == 64 + 32
    assert warnings == []
    assert hit_tokens(folder, "--concurrency", "1") == world.hits


def test_the_header_tells_the_deployment(folder: Path) -> None:
    world = SchedulerWorld(max_num_seqs=5, num_blocks=77)
    world.serve("a", prompt(1, 40), 2)
    closed(world)
    deployment = read_deployment(str(folder))
    assert deployment is not None
    assert deployment.groups is not None
    assert deployment.groups.text == "full:16"
    assert (deployment.num_blocks, deployment.max_running_requests) == (77, 5)
    assert (deployment.max_batched_tokens, deployment.vllm) == (64, releases.installed_version())
    assert (deployment.num_ranks, deployment.tensor_parallel, deployment.pipeline_parallel) == (
        1, 1, 1
    )  # fmt: skip
    assert (deployment.cache_dtype, deployment.block_size) == ("auto", None)
    assert deployment.max_model_len == world.scheduler.max_model_len


def test_salts_and_adapters_stay_apart(folder: Path) -> None:
    world = SchedulerWorld()
    ways: list[dict[str, Any]] = [{}, {"salt": "s"}, {"salt": "t"}, {"adapter": "l"}, {}]
    for number, options in enumerate(ways):
        world.serve(f"r{number}", prompt(1, 40), 1, **options)
    closed(world)
    recorded = [set(line["hash_ids"][:2]) for line in lines(folder)]
    assert recorded[0] == recorded[4] == {0, 1}
    assert len(set.union(*recorded)) == 8


def test_aborted_requests_tell_what_they_generated(folder: Path) -> None:
    world = SchedulerWorld(max_num_seqs=2)
    world.add("a", prompt(1, 40), 100)
    world.add("b", prompt(2, 100), 100)
    world.add("waits", prompt(3, 40), 100)
    world.step()  # 40 tokens of a and 24 of b
    for _ in range(20):
        world.step()
    world.abort("a")
    world.abort("waits")
    world.abort("b")
    closed(world)
    a, b = lines(folder)  # the third request was never computed
    assert (a["output_length"], a["status"], len(ids(a))) == (21, "aborted", 3)
    assert (b["output_length"], b["status"], b["input_length"]) == (19, "aborted", 100)


def test_preempted_requests_are_recorded_once(folder: Path) -> None:
    world = SchedulerWorld(num_blocks=12)
    for number in range(4):
        world.add(f"r{number}", prompt(number, 40), 60)
    requests = list(world.scheduler.requests.values())
    world.run()
    closed(world)
    assert sum(request.num_preemptions for request in requests) > 0
    recorded = lines(folder)
    assert [line["output_length"] for line in recorded] == [60] * 4
    assert all(len(ids(line)) == 6 for line in recorded)
    assert len({each for line in recorded for each in ids(line)}) == 24


def test_steps_tell_their_work(folder: Path) -> None:
    world = SchedulerWorld(max_num_batched_tokens=64)
    world.serve("a", prompt(1, 100), 3)
    closed(world)
    steps = lines(folder, "steps")
    work = [(s["prefill_tokens"], s["context_tokens"], s["running"]) for s in steps]
    assert work == [(64, 0, 1), (36, 64, 1), (0, 100, 1), (0, 101, 1)]
    assert all(0 < step["duration"] < 5 for step in steps)


class Clock:
    """Replaces the module. Each read takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1
        return self.now

    time = staticmethod(time.time)


def test_time_between_steps_is_theirs_while_requests_are_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in (hooks, recorder_module):
        monkeypatch.setattr(module, "time", clock)
    world = SchedulerWorld()
    world.add("a", prompt(1, 40), 3)
    world.step()
    clock.now += 100
    world.step()
    world.step()
    clock.now += 1000  # no request is there
    world.add("b", prompt(2, 40), 3)
    world.step()
    world.abort("b")
    clock.now += 1000
    world.serve("c", prompt(3, 40), 1)
    closed(world)
    assert [step["duration"] for step in lines(folder, "steps")] == [1, 102, 2, 1, 1]


def test_a_step_that_overlaps_another_lasts_from_its_end(folder: Path) -> None:
    world = SchedulerWorld(is_async=True, num_steps_ahead=2)
    world.serve("a", prompt(1, 40), 5)
    closed(world)
    (line,) = lines(folder)
    assert line["output_length"] == 5
    began = time.perf_counter()
    assert sum(step["duration"] for step in lines(folder, "steps")) < began


@pytest.mark.parametrize(
    ("policy", "variables"),
    [
        ("uncached-first", {}),
        ("vllm", {settings.INTERVAL_VARIABLE: "0"}),
        ("interval=64", {settings.INTERVAL_VARIABLE: "64"}),
        ("pin=16", {settings.PIN_VARIABLE: "1"}),
        ("adaptive,share=0.25", {settings.POLICY_VARIABLE: "adaptive,share=0.25"}),
    ],
)
def test_a_window_and_the_policy_are_in_the_header(
    folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    closed(SchedulerWorld(window()))
    deployment = read_deployment(str(folder))
    assert deployment is not None
    assert deployment.groups is not None
    assert deployment.policy is not None
    assert (deployment.groups.text, deployment.policy.name) == ("swa:16:64", policy)


def test_a_second_scheduler_in_one_folder_has_ids_of_its_own(folder: Path) -> None:
    for _ in range(2):
        world = SchedulerWorld()
        world.serve("a", prompt(1, 40), 1)
        world.serve("b", prompt(1, 40), 1)
        closed(world)
    assert [line["hash_ids"][:2] for line in lines(folder)] == [[0, 1]] * 4
    assert hit_tokens(folder, "--concurrency", "1") == 64


def test_without_the_variable_nothing_is_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVOXIDE_RECORD")
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 5)
    assert world.scheduler._kvoxide_recorder is None
    assert not folder.exists()


def test_nothing_of_a_request_stands_in_the_files(folder: Path) -> None:
    world = SchedulerWorld()
    extra = {"kvoxide_priority": 80, "kvoxide_ttl": 2.5}
    request = world.add("secret", prompt(700, 40), 20, salt="secret", adapter="secret", extra=extra)
    hashes = request.block_hashes
    world.run()
    closed(world)
    (line,) = lines(folder)
    assert (line["priority"], line["ttl"]) == (80, 2.5)
    text = b"".join(map(plain, folder.iterdir()))
    assert b"secret" not in text
    assert not any(each.hex().encode() in text or each in text for each in hashes)
    assert all(number < 1000 for number in line["hash_ids"])


def test_recording_takes_little_beside_the_scheduler(folder: Path) -> None:
    """Compares how long the scheduler waits for the recorder in steps of 256 requests with the time
    of the scheduler and of the code that plays the model."""
    world = SchedulerWorld(max_num_seqs=256, max_num_batched_tokens=8192, num_blocks=5000)
    for number in range(256):
        world.add(f"r{number}", prompt(number, 32), 60)
    recorder = world.scheduler._kvoxide_recorder
    waited: list[float] = []
    for name in ("step_scheduled", "step_ends", "request_ends"):
        method = getattr(recorder, name)

        def timed(*args: Any, method: Any = method, **more: Any) -> None:
            began = time.thread_time()
            method(*args, **more)
            waited.append(time.thread_time() - began)

        setattr(recorder, name, timed)
    began = time.thread_time()
    world.run()
    in_all = time.thread_time() - began
    closed(world)
    assert len(lines(folder)) == 256
    assert len(lines(folder, "steps")) == 60
    assert sum(waited) < 0.01 * in_all, sum(waited) / in_all


def kinds(folder: Path) -> list[str]:
    """Return the kinds of the lines of the first file, by their first field."""
    return [next(iter(line)) for line in all_lines(folder)]


def test_resets_are_recorded_where_they_happened(folder: Path) -> None:
    """Blocks in use prevent a reset of the cache. Then nothing changes."""
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 3)
    assert world.scheduler.reset_prefix_cache()
    world.serve("b", prompt(1, 40), 3)
    world.add("c", prompt(1, 40), 3)
    world.step()
    assert not world.scheduler.reset_prefix_cache()
    world.run()
    world.add("d", prompt(1, 40), 5)
    world.step()
    assert world.scheduler.reset_prefix_cache(reset_running_requests=True)
    world.run()
    world.serve("e", prompt(1, 40), 3)
    closed(world)
    resets = [line["reset"] for line in all_lines(folder) if "reset" in line]
    assert resets == ["idle", "preempting"]
    recorded = [kind for kind in kinds(folder) if kind in ("request", "reset")]
    assert recorded == ["request", "reset", "request", "request", "reset", "request", "request"]
    assert world.hits == 3 * 32
    assert hit_tokens(folder) == world.hits
    assert hit_tokens(folder, "--arrivals", "full", "--concurrency", "1") == world.hits


def test_requests_that_skip_the_cache_are_recorded(folder: Path) -> None:
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 3)
    world.serve("b", prompt(1, 40), 3, prompt_logprobs=1)
    world.serve("c", prompt(1, 40), 3)
    closed(world)
    assert [line.get("skips_cache") for line in lines(folder)] == [None, True, None]
    assert hit_tokens(folder) == world.hits == 32


@pytest.mark.parametrize("is_async", [False, True])
def test_a_replay_follows_the_steps_of_the_server(folder: Path, is_async: bool) -> None:
    """Twelve requests of three conversations have a pool that is too small for them."""
    steps_ahead = 2 if is_async else 1
    world = SchedulerWorld(
        num_blocks=24, max_num_seqs=6, is_async=is_async, num_steps_ahead=steps_ahead
    )
    requests = []
    for number in range(12):
        requests.append(world.add(f"r{number}", prompt(number % 3, 60 + 16 * (number // 3)), 30))
        for _ in range(4):
            world.step()
    world.abort("r11")
    world.run()
    closed(world)
    assert sum(request.num_preemptions for request in requests) > 0
    assert hit_tokens(folder) == world.hits > 0


def test_steps_without_change_take_no_room(folder: Path) -> None:
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 500)
    closed(world)
    plain_steps = [
        entry
        for line in all_lines(folder)
        for entry in line.get("schedule", [])
        if isinstance(entry, int)
    ]
    assert sum(plain_steps) == 499
    assert len(plain_steps) < 100
