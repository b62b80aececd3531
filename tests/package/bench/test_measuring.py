"""Tests of the meaning of the numbers of ``kvoxide bench``, and of the rows of
``python -m benches.memory``."""

import gc
import importlib.util
import sys

import pytest
from kvoxide.lab.bench.clock import Samples, collector_paused, timed
from kvoxide.lab.bench.comparison import Measurement
from kvoxide.lab.bench.layouts import LAYOUTS, MILLION
from kvoxide.lab.bench.prompts import make_prompt
from kvoxide.lab.bench.rows import ROWS
from kvoxide.lab.bench.sides import BenchError, StandaloneSide
from kvoxide.lab.bench.traffic import Effort, Traffic

from benches import memory


def measurement(vllm_us: float | None, kvoxide_us: float) -> Measurement:
    return Measurement(ROWS["free"], "full", vllm_us, kvoxide_us)


def test_steps_count_with_their_fastest_round_and_are_averaged() -> None:
    samples = Samples()
    for step, nanoseconds in ((0, 5_000), (1, 2_000), (0, 3_000), (1, 9_000)):
        samples.add("decode", "vLLM", nanoseconds, step)
    assert samples.microseconds("decode", "vLLM") == 2.5
    assert samples.microseconds("decode", "kvoxide") is None


def test_only_work_is_timed() -> None:
    nanoseconds, result = timed(sum, range(300_000))
    assert result == sum(range(300_000))
    assert nanoseconds > 100_000


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_afterwards(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_more_rounds_can_only_be_faster() -> None:
    both = measurement(40, 4).with_more_rounds(measurement(50, 2))
    assert (both.vllm_us, both.kvoxide_us, both.ratio) == (40, 2, 20)
    assert measurement(None, 4).with_more_rounds(measurement(None, 5)).ratio is None


def test_prompts_share_no_block_and_have_hashes_for_their_output() -> None:
    first, second = (make_prompt(name, 100, 16, num_output_tokens=60) for name in "ab")
    assert first.num_hashes(100) == 6
    hashes = first.hashes_between(0, 10)
    assert {len(h) for h in hashes} == {32}
    assert len({*hashes, *second.hashes_between(0, 10)}) == 20
    assert make_prompt("a", 100, 16, 60) == first


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_pool_for_a_million_tokens_has_the_size_that_is_stated(name: str) -> None:
    layout = LAYOUTS[name]
    effort = Effort()
    assert effort.num_blocks(layout) == layout.blocks_per_million
    assert 60_000 <= layout.blocks_per_million * layout.dcp_world_size <= 90_000
    assert layout.blocks_held(MILLION, in_flight=effort.chunk) < layout.blocks_per_million


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_evicting_row_evicts(name: str) -> None:
    layout, effort = LAYOUTS[name], Effort(tokens=8192, prefill_rounds=1)
    side = StandaloneSide(layout, effort.num_blocks(layout), effort.max_model_len, effort.chunk)
    Traffic(layout, [side], effort).prefill()
    first = make_prompt("cold", effort.tokens, layout.hash_block_size)
    hit = side.manager.get_computed_blocks(side.new_request("again", first))
    assert hit[1] < effort.tokens // 2


def test_a_hit_that_is_not_there_is_no_measurement() -> None:
    layout, effort = LAYOUTS["full"], Effort(tokens=8192)
    side = StandaloneSide(layout, effort.num_blocks(layout), effort.max_model_len, effort.chunk)
    with pytest.raises(BenchError, match="kvoxide hits 0 of 8192 tokens"):
        Traffic(layout, [side], effort).hit()


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_every_row_of_memory_is_measured_with_and_without_caches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The tests do not depend on how exact the times are.
    monkeypatch.setattr(memory, "CACHE_BYTES", 1 << 20)
    monkeypatch.setattr(sys, "argv", ["memory", "--layout", "full", "dsv4", "--tokens", "20000"])
    memory.main()
    lines = [line.rsplit(maxsplit=2) for line in capsys.readouterr().out.splitlines()[1:]]
    expected = [
        (layout, row) for layout in ("full", "dsv4") for row in (*memory.ROWS, memory.HASHES)
    ]
    assert [tuple(label.split(maxsplit=1)) for label, _, _ in lines] == expected
    assert all(float(left) > 0 and float(overwritten) > 0 for _, left, overwritten in lines)
