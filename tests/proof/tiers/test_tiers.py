"""Tests of the judge of both tiers: its traffic, its sizes, its arithmetic, and that it finds a
loss."""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from kvoxide._core import HostMemory
from kvoxide.lab.replay.input import preset_groups

from tests.proof.retention.arguments import count
from tests.proof.retention.cells import HELD_BACK_SEED, Half, Traffics, chosen
from tests.proof.retention.known import KnownResults, build_digest
from tests.proof.retention.traffic import TOKENS_PER_ID, Traffic
from tests.proof.retention.workloads import Workload, workloads
from tests.proof.tiers.judge import Cell, Judge
from tests.proof.tiers.playing import Memory, PlayedTiers, TieredTraffic
from tests.proof.tiers.sizes import SIZES, Size, sizes
from tests.proof.tiers.variants import (
    ADAPTIVE_ARC,
    ADAPTIVE_LRU,
    VARIANTS,
    WRITE_THROUGH,
    Variant,
)
from tests.proof.tiers.verdict import (
    Summary,
    best_lines,
    clock_lines,
    comparison_lines,
    gain,
    judged_lines,
    lost_lines,
    mean_lines,
    transfer_lines,
)
from tests.proof.tiers.workloads import all_workloads, on_one_server

VLLM_ALONE, ADAPTIVE_ALONE = Variant("vllm"), Variant("adaptive")
JOINED = Variant("adaptive", joined=True)
QUICK = (VLLM_ALONE, WRITE_THROUGH, ADAPTIVE_ALONE, ADAPTIVE_LRU, ADAPTIVE_ARC, JOINED)
BUILD = "a build"


def small_chat(traffic: Traffic) -> None:
    system = traffic.fresh(300)
    for conversation in range(40):
        text, session = traffic.text(system), traffic.session(conversation, conversation * 4)
        for _ in range(4):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(300, 0.5)))
            text = session.ask(text, traffic.fresh(traffic.whole(10, 60)))
            session.pause(60.0)
        session.end()


def small_team(traffic: Traffic) -> None:
    """Agents that wait for two helpers each."""
    for task in range(5):
        leader = traffic.session(task, task * 2.0)
        text = leader.ask(traffic.text(traffic.fresh(200)), traffic.fresh(20))
        helpers = [leader.fork(f"{task}-{number}") for number in range(2)]
        for helper in helpers:
            helper.ask(traffic.text(traffic.fresh(100)), traffic.fresh(10))
        leader.join(helpers)
        leader.ask(text, traffic.fresh(5))
        leader.end()


SMALL = Traffics(Workload("small-chat", small_chat), 1)


def judged(folder: Path, preset: str, **settings: Any) -> list[Cell]:
    known = KnownResults(folder / "known.jsonl", PlayedTiers)
    options = {"variants": QUICK, "sizes": [Size(10, 4)], "gpu_build": BUILD, **settings}
    return list(Judge(known, [preset], **options).cells([SMALL], jobs=1))


def test_a_cell_has_both_tiers_and_the_gpu_alone_never_hits_more(tmp_path: Path) -> None:
    cells = [*judged(tmp_path, "llama"), *judged(tmp_path, "gpt-oss")]
    assert [cell.preset for cell in cells] == ["llama", "gpt-oss"]
    for cell in cells:
        assert cell.memory.chunks == 4 * cell.memory.blocks
        assert cell.half == "held-back"
        assert cell.share(WRITE_THROUGH) > cell.share(VLLM_ALONE) + 5
        assert cell.share(ADAPTIVE_LRU) > cell.share(ADAPTIVE_ALONE) + 5
        assert cell.share(JOINED) > cell.share(ADAPTIVE_ALONE) + 5
        for variant in (WRITE_THROUGH, ADAPTIVE_LRU, ADAPTIVE_ARC):
            run = cell.runs[variant.name]
            assert run.stored_chunks > run.loaded_chunks > 0
            assert 0 < run.loaded_tokens <= run.hit_tokens
            assert run.first_token_p50 <= run.first_token_mean <= run.first_token_p99
        for variant in (VLLM_ALONE, ADAPTIVE_ALONE, JOINED):
            assert cell.runs[variant.name].stored_chunks == 0


def test_the_working_set_is_every_block_that_a_request_fills(tmp_path: Path) -> None:
    recorded = on_one_server(SMALL, 2)
    filled = set()
    for record in map(json.loads, recorded.lines):
        # The last generated token is never computed.
        computed = record["input_length"] + record["output_length"] - 1
        ids = [*record["hash_ids"], *record["output_hash_ids"]]
        filled.update(ids[: computed // TOKENS_PER_ID])
    tiered = TieredTraffic(KnownResults(tmp_path / "known", PlayedTiers), recorded, BUILD)
    memory = tiered.memory(preset_groups("llama"), Size(10, 0.5))
    assert memory.blocks == round(0.1 * len(filled))
    assert memory.chunks == round(0.5 * memory.blocks)


def test_requests_that_run_use_about_a_third_of_the_pool(tmp_path: Path) -> None:
    (cell,) = judged(tmp_path, "llama", sizes=[Size(3, 4)], copies=4)
    assert cell.memory.speed < 1
    assert 0.15 < cell.runs[WRITE_THROUGH.name].used_blocks / cell.memory.blocks < 0.45


def test_copies_share_a_server_and_no_tokens() -> None:
    traffic = Traffics(Workload("small-team", small_team), 1)
    alone = [traffic.workload.recorded(seed).without_session_ends() for seed in (1, 1001)]
    assert on_one_server(traffic, 1).request_lengths() == alone[0].request_lengths()
    both = on_one_server(traffic, 2)
    records = [json.loads(line) for line in both.lines]
    assert len(both.trace()) == len(records) == sum(len(each.lines) for each in alone)
    times = [record["timestamp"] for record in records]
    assert times == sorted(times)
    copies = [[each for each in records if each["session_id"][:2] == copy] for copy in ("0:", "1:")]
    ids = [{one for record in copy for one in record["hash_ids"]} for copy in copies]
    assert not ids[0] & ids[1]
    for copy in copies:
        known = {record["request_id"] for record in copy if "request_id" in record}
        waits = {each for record in copy for each in record.get("wait_for", [])}
        assert waits == known
        assert len(waits) == 15


def test_own_workloads_are_held_back_and_say_where_they_are_from() -> None:
    own = set(all_workloads()) - set(workloads())
    assert own == {"graded-answers", "long-conversations", "one-shot"}
    tuning, held_back = (set(chosen([half], among=all_workloads())) for half in Half)
    assert {each.workload.name for each in held_back} == set(all_workloads())
    assert not own & {each.workload.name for each in tuning}
    assert {each.seed for each in held_back} == {HELD_BACK_SEED}
    for name in own:
        workload = all_workloads()[name]
        described = workload.generator.__doc__
        assert described is not None
        assert any(f"{year}" in described for year in range(1966, 2027))
        assert 300 <= len(workload.recorded(1).lines) <= 1000


def test_a_cell_that_rejects_a_request_is_left_out(tmp_path: Path) -> None:
    assert not judged(tmp_path, "llama", sizes=[Size(0.1, 1)])


def test_another_build_plays_only_adaptive_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = judged(tmp_path, "llama")
    again: list[str] = []
    real = TieredTraffic._play

    def noted(self: TieredTraffic, groups: Any, variant: Variant, memory: Memory) -> PlayedTiers:
        again.append(variant.name)
        return real(self, groups, variant, memory)

    monkeypatch.setattr(TieredTraffic, "_play", noted)
    assert judged(tmp_path, "llama") == first
    assert not again
    assert judged(tmp_path, "llama", gpu_build="another") == first
    assert again == ["adaptive alone", "adaptive/lru", "adaptive/arc", "adaptive one pool"]


def test_a_planted_loss_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU memory of ``adaptive/lru`` has one chunk."""
    real = Variant.memory

    def planted(self: Variant, chunks: int, block_size: int) -> HostMemory | None:
        return real(self, 1 if self == ADAPTIVE_LRU else chunks, block_size)

    monkeypatch.setattr(Variant, "memory", planted)
    (cell,) = judged(tmp_path, "llama")
    assert gain(cell, ADAPTIVE_LRU) < -5
    assert len(list(lost_lines([cell], ADAPTIVE_LRU))) == 3
    assert "| held-back, all | 1 | 1 (100 %) |" in "\n".join(judged_lines([cell], ADAPTIVE_LRU))


def test_an_unknown_policy_is_skipped_with_its_reason() -> None:
    missing = Variant("adaptive", "no-such-policy").missing()
    assert missing is not None
    assert missing.startswith("adaptive/no-such-policy is skipped: ")
    assert "lru or arc" in missing or "no-such-policy" in missing
    for variant in (WRITE_THROUGH, ADAPTIVE_ARC, JOINED):
        assert variant.missing() is None


def test_sizes_are_read_and_bad_sizes_are_refused() -> None:
    assert tuple(sizes("3:4,10:1")) == SIZES
    assert sizes("30:0.5") == [Size(30, 0.5)]
    assert str(Size(30, 0.5)) == "30 % / 0.5x"
    for bad in ("", "3", "3:", "3:0", "0:4", "101:1", "3:x", "nan:1", "3:inf"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no size; write the pool in %"):
            sizes(bad)


def test_a_bad_size_on_the_command_line_is_refused_in_words() -> None:
    command = [sys.executable, "-m", "tests.proof.tiers", "--sizes", "3"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "'3' is no size; write the pool in % of the working set" in refused.stderr


def test_fewer_than_one_copy_is_refused() -> None:
    assert count("2") == 2
    for text in ("0", "-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="is too small; give 1 or more"):
            count(text)


def test_names_of_variants_differ() -> None:
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)


def test_gains_are_over_the_best_other_with_two_tiers() -> None:
    first, second = cell(60.0), cell(54.0)
    assert gain(first, ADAPTIVE_LRU) == pytest.approx(5.0)
    summary = Summary.of([first, second, cell(60.0)], ADAPTIVE_LRU)
    assert (summary.num_cells, summary.num_lost) == (3, 1)
    assert summary.worst == pytest.approx(-1.0)
    over_arc, over_itself, over_best = summary.gains
    assert over_arc == over_best == pytest.approx((3.0, 5.0))
    assert over_itself == (0.0, 0.0)
    row = next(
        line for line in judged_lines([first, second], ADAPTIVE_LRU) if "tuning, all" in line
    )
    assert (
        row == "| tuning, all | 2 | 1 (50 %) | -1.00 | +2.00, +2.00 | +0.00, +0.00 | +2.00, +2.00 |"
    )
    rows = list(best_lines([first, second]))
    assert rows[2] == "| tuning, vllm/lru | 2 | 2 (100 %) | -10.00 | -7.50 |"
    assert rows[3] == "| tuning, adaptive/lru | 2 | 1 (50 %) | -1.00 | +2.00 |"
    lost = list(lost_lines([first, second], ADAPTIVE_LRU))
    assert len(lost) == 3
    assert lost[2].endswith(" | 30.0 | 50.0 | 54.0 | 55.0 | 90.0 | -1.00 |")


def test_means_are_by_half_size_and_preset() -> None:
    rows = list(mean_lines([cell(60.0), replace(cell(54.0), half="held-back", preset="gpt-oss")]))
    names = [row.split(" | ")[0][2:] for row in rows[2:]]
    parts = ("all", "3 % / 4x")
    assert names == [
        *(f"tuning, {part}" for part in (*parts, "llama")),
        *(f"held-back, {part}" for part in (*parts, "gpt-oss")),
    ]
    assert rows[2] == "| tuning, all | 1 | 30.0 | 50.0 | 60.0 | 55.0 | 90.0 |"


def test_transfers_are_compared_in_sum_and_in_the_median() -> None:
    first, second = cell(60.0), cell(60.0)
    runs = dict(second.runs)
    runs["adaptive/lru"] = replace(runs["adaptive/lru"], stored_chunks=9000, loaded_chunks=300)
    rows = list(transfer_lines([first, replace(second, runs=runs)]))
    row = next(row for row in rows if "adaptive/lru |" in row and row.startswith("| tuning"))
    # 2,000 and 9,000 chunks stored where vLLM stores 1,000 each; a tenth of the prompt was loaded.
    assert " | 11k | 5.50, 5.50 | 1.00, 1.00 | 0k | 1.00, 1.00 | 50.0 % | 16.7 % | 2.0 % |" in row
    row = next(row for row in rows if row.startswith("| tuning, vllm/lru |"))
    assert " | 2k | 1.00, 1.00 | 0.18, 0.31 | 0k | 0.50, 0.67 | " in row


def test_first_token_times_are_compared_with_write_through() -> None:
    first = cell(60.0)
    runs = dict(first.runs)
    fast = runs["adaptive/lru"]
    runs["adaptive/lru"] = replace(
        fast, first_token_p50=0.3, first_token_p99=2.0, first_token_mean=0.25
    )
    rows = list(clock_lines([first, replace(first, runs=runs)]))
    row = next(row for row in rows if row.startswith("| tuning, adaptive/lru"))
    assert row == "| tuning, adaptive/lru | 200 | 1,500 | 225 | +100.0 % | +50.0 % | +12.5 % |"


def test_a_change_is_compared_with_the_cells_before() -> None:
    other = replace(cell(58.0), seed=2)
    lines = list(comparison_lines([cell(60.0), other], [cell(54.0), other], ADAPTIVE_LRU))
    assert lines[:4] == [
        "adaptive/lru: 2 cells before and now",
        "before: 59.00 %, 0 lost, worst +3.00",
        "now: 56.00 %, 1 lost, worst -1.00",
        "better by more than 0.1: 0, worse: 1",
    ]
    assert "tuning, all: -3.00" in lines
    changed = "-6.00 chat, seed 1, llama, 3 % / 4x (gain +5.00 to -1.00, newly lost)"
    assert lines[-1] == changed
    assert list(comparison_lines([], [other], ADAPTIVE_LRU)) == [
        "adaptive/lru: 0 cells before and now"
    ]


def test_results_are_read_back_as_they_were(tmp_path: Path) -> None:
    assert Cell.of(json.loads(json.dumps(asdict(cell(60.0))))) == cell(60.0)
    path = tmp_path / "known.jsonl"
    KnownResults(path, PlayedTiers).add("a", run(50.0))
    assert KnownResults(path, PlayedTiers).get("a") == run(50.0)
    assert len(build_digest()) == 16
    assert asdict(run(50.0))["held_twice"] == 0.5


def run(share: float, **counts: Any) -> PlayedTiers:
    return PlayedTiers(
        prompt_tokens=1000,
        hit_tokens=round(10 * share),
        rejected_requests=0,
        peak_used_blocks=1,
        cached_blocks=1,
        first_token_p50=0.1,
        first_token_p99=1.0,
        first_token_mean=0.2,
        used_blocks=1.0,
        preemptions=0,
        held_twice=0.5,
        **{
            "loaded_tokens": 100,
            "stored_chunks": 1000,
            "loaded_chunks": 100,
            "without_tail_tokens": 20,
            **counts,
        },
    )


def cell(share: float) -> Cell:
    """Return a cell in which ``adaptive/lru`` has this hit share."""
    runs = {
        "vllm alone": run(30.0),
        "vllm/lru": run(50.0),
        "adaptive/lru": run(share, stored_chunks=2000, loaded_chunks=100),
        "adaptive/arc": run(55.0),
        "adaptive one pool": run(90.0),
    }
    return Cell("chat", "chats", 1, "tuning", "llama", "3 % / 4x", Memory(100, 400, 1.0), runs)
