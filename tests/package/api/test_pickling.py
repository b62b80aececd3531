"""Tests that traces, settings and results stay the same when they travel between processes."""

import json
import pickle
import random
import subprocess
import sys
from typing import Any

import kvoxide
import numpy as np
import pytest
from kvoxide import (
    KVCacheConfig,
    KVCacheGroupSpec,
    PickleError,
    Policy,
    Retention,
    Serving,
    Simulation,
    SimulationResult,
    StepTime,
    Trace,
)

WINDOW = KVCacheGroupSpec("sliding_window", 16, sliding_window=64)
SETTINGS: list[Any] = [
    KVCacheGroupSpec("full_attention", 16),
    KVCacheGroupSpec("full_attention", 16, is_eagle_group=True, dcp_sharded=False, layout=3),
    KVCacheGroupSpec("sliding_window_mla", 32, sliding_window=128, prefix_cacheable=False),
    KVCacheGroupSpec("chunked_local_attention", 16, attention_chunk_size=64),
    KVCacheGroupSpec("mamba", 16, num_speculative_blocks=1),
    KVCacheConfig(10, [WINDOW], needs_kv_cache_zeroing=True),
    Policy(),
    Policy(recycle_order="fifo", reachable_block_mask=False, pin_min_drop_size=3),
    Policy(retention_interval="auto"),
    Policy(retention_interval=None),
    Policy(retention="adaptive", protected_share=0.3),
    Retention(priority=80),
    Retention(priority=0, ttl=1.5),
    Retention(priority=80, start=4, end=8),
    StepTime(base=0.5, prefill=1e-7, context=0.0, running=1e-5),
    Serving(speed=0.3, instances=3, router="scored", weights={"queue": 1.0}),
]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", SETTINGS, ids=lambda value: type(value).__name__)
def test_settings_are_equal_afterwards(value: Any, protocol: int) -> None:
    copy = pickle.loads(pickle.dumps(value, protocol))
    assert type(copy) is type(value)
    assert copy == value


def random_trace(seed: int) -> Trace:
    """Return prompts that share prefixes, in every notation. Some have a retention, and some are in
    conversations."""
    draw = random.Random(seed)
    trace = Trace()
    for number in range(40):
        arrival = number * draw.random()
        if draw.random() < 0.5:
            prompt = [*range(draw.randrange(1, 300)), *range(1000 * number, 1000 * number + 20)]
            claim = Retention(priority=draw.randrange(101), ttl=draw.choice([None, 0.5]))
            output_length = draw.randrange(40)
            trace.push_prompt(prompt, output_length, arrival=arrival, retention=claim)
        else:
            ids = [*range(draw.randrange(1, 4)), 100 + number]
            line = (
                f'{{"input_length": {len(ids) * 512 - draw.randrange(99)}, "output_length": 7,'
                f' "timestamp": {arrival * 1000:.0f}, "hash_ids": {ids},'
                f' "session_id": "{number % 5}"}}'
            )
            trace.push_line(line.encode())
    return trace


def replayed(trace: Trace, seed: int, *, is_timed: bool, bound: bool = False) -> SimulationResult:
    policy = (
        Policy(retention="adaptive")
        if seed % 2
        else Policy(pin_min_drop_size=2, retention_interval=None)
    )
    serving = Serving(speed=1.0, instances=2, router="session") if is_timed else None
    groups = [KVCacheGroupSpec("full_attention", 16), WINDOW]
    return Simulation(
        trace, groups, 300, policy=policy, concurrency=4, serving=serving, bound=bound
    ).run()


def figures(result: Any) -> dict[str, Any]:
    """Return all of a result, except how long the replay itself took."""
    if result is None:
        return {}
    old_names = {"orderings"}
    names = [name for name in dir(result) if not name.startswith("_") and name not in old_names]
    told = {name: getattr(result, name) for name in names}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in told.items()
        if name not in ("serving", "total", "instances")
    }


def counted(result: SimulationResult) -> dict[str, Any]:
    times = ("wall_seconds", "schedule_seconds", "step_seconds", "bound_seconds")
    return {name: value for name, value in figures(result).items() if name not in times}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_timed", [False, True])
def test_an_unpickled_trace_is_replayed_as_the_trace_was(seed: int, is_timed: bool) -> None:
    trace = random_trace(seed)
    copy = pickle.loads(pickle.dumps(trace))
    assert (len(copy), copy.tokens_per_id) == (len(trace), trace.tokens_per_id)
    assert (copy.num_prompt_tokens, copy.num_output_tokens) == (
        trace.num_prompt_tokens,
        trace.num_output_tokens,
    )
    expected, found = (replayed(each, seed, is_timed=is_timed) for each in (trace, copy))
    assert repr(counted(found)) == repr(counted(expected))
    if is_timed:
        assert expected.serving is not None
        assert found.serving is not None
        assert repr(figures(found.serving)) == repr(figures(expected.serving))
        assert figures(found.serving.total) == figures(expected.serving.total)


@pytest.mark.parametrize("seed", range(4))
def test_a_result_tells_the_same_afterwards(seed: int) -> None:
    timed = replayed(random_trace(seed), seed, is_timed=True)
    bounded = replayed(random_trace(seed), seed, is_timed=False, bound=True)
    assert bounded.bound_hit_tokens is not None
    for result in (timed, bounded):
        copy = pickle.loads(pickle.dumps(result))
        assert repr(figures(copy)) == repr(figures(result))
    assert timed.serving is not None
    serving = pickle.loads(pickle.dumps(timed.serving))
    assert repr(figures(serving)) == repr(figures(timed.serving))
    for copy, instance in zip(serving.instances, timed.serving.instances, strict=True):
        assert figures(copy) == figures(instance)
        assert figures(pickle.loads(pickle.dumps(instance))) == figures(instance)


def recorded_trace(*, has_output_ids: bool = True) -> Trace:
    """Return turns of conversations that begin with earlier generated tokens, from two servers."""
    trace = Trace(format="bailian")
    for server in range(2):
        trace.start_part(delay=0.4 * server)
        for turn in range(1, 5):
            for chat in range(6):
                # Six consecutive ids, then six other consecutive ids.
                known = [n + 1000 * chat + 500 * (n // 6 % 2) for n in range(6 * turn + 2)]
                ids = known[: 6 * turn]
                line = {
                    "timestamp": turn + chat / 10,
                    "chat_id": chat,
                    "input_length": 16 * len(ids) - 3,
                    "output_length": 35,
                    "hash_ids": ids,
                }
                if has_output_ids:
                    line["output_hash_ids"] = known[6 * turn :]
                trace.push_line(json.dumps(line).encode())
    trace.sort_by_arrival()
    return trace


@pytest.mark.parametrize("is_timed", [False, True])
def test_an_unpickled_recording_is_replayed_as_the_recording_was(is_timed: bool) -> None:
    trace = recorded_trace()
    copy = pickle.loads(pickle.dumps(trace))
    assert (copy.tokens_per_id, len(copy)) == (16, 48)
    expected, found = (replayed(each, 0, is_timed=is_timed) for each in (trace, copy))
    assert repr(counted(found)) == repr(counted(expected))
    prompts_only = replayed(recorded_trace(has_output_ids=False), 0, is_timed=is_timed)
    assert found.hit_tokens > prompts_only.hit_tokens > 0


def test_ids_go_on_after_those_that_were_pickled() -> None:
    # The first blocks of the last chat, on the second server.
    line = {"input_length": 96, "output_length": 1, "hash_ids": [*range(5000, 5006)]}
    trace = recorded_trace()
    copies = [trace, pickle.loads(pickle.dumps(trace))]
    for each in copies:
        each.push_line(json.dumps(line).encode())
    expected, found = (replayed(each, 0, is_timed=False) for each in copies)
    assert repr(counted(found)) == repr(counted(expected))
    assert found.hit_tokens > replayed(recorded_trace(), 0, is_timed=False).hit_tokens


def test_lines_go_on_after_what_was_pickled() -> None:
    trace = Trace(tokens_per_id=100)
    copy = pickle.loads(pickle.dumps(trace))
    copy.push_line(b'{"input_length": 150, "output_length": 1, "hash_ids": [1, 2]}')
    assert (len(copy), len(trace)) == (1, 0)
    with pytest.raises(kvoxide.TraceError, match="one for each 100"):
        copy.push_line(b'{"input_length": 150, "output_length": 1, "hash_ids": [1]}')


def test_another_process_reads_what_this_one_wrote() -> None:
    program = "import pickle, sys; print(len(pickle.load(sys.stdin.buffer)))"
    bytes_ = pickle.dumps(random_trace(1))
    done = subprocess.run([sys.executable, "-c", program], input=bytes_, capture_output=True)
    assert done.stdout == b"40\n", done.stderr


def test_damage_anywhere_is_refused() -> None:
    for value in (random_trace(3), replayed(random_trace(3), 3, is_timed=True)):
        restore, (content,) = value.__reduce__()
        for at in range(0, len(content), 1 + len(content) // 200):
            hurt = bytearray(content)
            hurt[at] ^= 1 + at % 255
            with pytest.raises(PickleError, match=f"the bytes of a {type(value).__name__} are"):
                restore(bytes(hurt))
            with pytest.raises(PickleError):
                restore(content[:at])
