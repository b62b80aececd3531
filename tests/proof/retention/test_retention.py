"""Tests of the judge of retention: its traffic, its halves, and that it finds a loss."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kvoxide._core import Policy
from kvoxide.lab.replay.input import Groups

from tests.proof.retention import judge as judge_module
from tests.proof.retention.cells import PERCENTS, Half, Traffics, Whole, chosen, has_room
from tests.proof.retention.judge import Cell, Judge
from tests.proof.retention.known import KnownResults
from tests.proof.retention.sweep import falls, sweep_lines
from tests.proof.retention.traffic import TOKENS_PER_ID, Traffic
from tests.proof.retention.verdict import (
    Summary,
    comparison_lines,
    gain,
    is_ample,
    lost_lines,
    summary_lines,
)
from tests.proof.retention.workloads import TWIN, TraceFile, Workload, workloads


def small_scan(traffic: Traffic) -> None:
    """Ask about 24 documents in turns. LRU hits none of them in a pool that holds half."""
    documents = [traffic.fresh(2000) for _ in range(24)]
    for number in range(240):
        prompt = traffic.text(documents[number % 24], traffic.fresh(60))
        traffic.ask(number * 0.5, prompt, traffic.fresh(8), number)


def small_chat(traffic: Traffic) -> None:
    system = traffic.fresh(300)
    for conversation in range(30):
        text = traffic.text(system)
        for turn in range(4):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(900, 0.5)))
            seconds = conversation * 2 + turn * 20.0
            text = traffic.ask(seconds, text, traffic.fresh(traffic.whole(20, 200)), conversation)


def small(generator: Any, *, answers_return: bool = True) -> Traffics:
    name = generator.__name__
    workload = Workload(name, "chat", generator, answers_return)
    return Traffics(workload, 1)


def judged(folder: Path, preset: str, traffic: Traffics, **settings: Any) -> list[Cell]:
    known = KnownResults(folder / "known.jsonl")
    return list(Judge(known, [preset], **settings).cells([traffic], jobs=1))


def records(workload: Workload | TraceFile, seed: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in workload.recorded(seed).lines]


def test_a_seed_decides_the_traffic() -> None:
    for workload in (workloads()["regenerated-chat"], small(small_chat).workload):
        first = workload.recorded(1)
        assert first == workload.recorded(1)
        assert first.digest != workload.recorded(2).digest
        assert len(first.trace()) == len(first.lines) == len(first.request_lengths())


def test_prompts_share_ids_as_far_as_they_share_tokens() -> None:
    traffic = Traffic("any", 1, answers_return=False)
    common, rest = traffic.fresh(40), traffic.fresh(100)
    traffic.ask(0, traffic.text(common, rest), traffic.fresh(1), "a")
    traffic.ask(1, traffic.text(common.first(20), common.first(20)), traffic.fresh(1), "b")
    traffic.ask(2, traffic.text(common, rest.first(8), traffic.fresh(30)), traffic.fresh(1), "c")
    first, second, third = (json.loads(line)["hash_ids"] for line in traffic.lines())
    assert len(first) == -(-140 // TOKENS_PER_ID)
    assert first[:1] == second[:1]
    assert not set(first[1:]) & set(second[1:])
    assert first[:3] == third[:3]
    assert not set(first[3:]) & set(third[3:])


def test_answers_come_back_in_the_next_prompt_but_not_in_the_twin() -> None:
    rows = records(small(small_chat).workload, 1)
    first, second = [row for row in rows if row["session_id"] == "0"][:2]
    ids = [*first["hash_ids"], *first["output_hash_ids"]]
    num_shared = (first["input_length"] + first["output_length"]) // TOKENS_PER_ID
    assert second["hash_ids"][:num_shared] == ids[:num_shared]
    twin = records(small(small_chat, answers_return=False).workload, 1)
    assert all("output_hash_ids" not in row for row in twin)
    for row in rows + twin:
        del row["hash_ids"]
        row.pop("output_hash_ids", None)
    assert rows == twin


def test_every_family_says_where_it_is_from() -> None:
    for workload in workloads().values():
        described = workload.generator.__doc__
        assert described is not None
        assert any(f"{year}" in described for year in range(1966, 2027)) or "arXiv" in described


def test_no_seed_of_a_workload_is_in_both_halves() -> None:
    tuning, held_back = (set(chosen([half])) for half in (Half.TUNING, Half.HELD_BACK))
    assert not tuning & held_back
    assert len(tuning) == len(held_back)
    assert {each.workload for each in held_back} == set(workloads().values())
    unseen = set(workloads().values()) - {each.workload for each in tuning}
    assert len(unseen) == len(workloads()) // 2
    for workload in workloads().values():
        family = workloads()[workload.name.removesuffix(TWIN)]
        assert Half.of(workload, 1) is Half.of(family, 1)
        assert Half.of(workload, 4) is Half.HELD_BACK
    # There are enough cells if none is left out.
    assert len(tuning) * 5 * len(PERCENTS) >= 200


def test_adaptive_keeps_a_part_of_a_scan(tmp_path: Path) -> None:
    (cell,) = judged(tmp_path, "llama", small(small_scan), percents=[50])
    assert cell.shares["vllm"] < 5
    assert gain(cell) > 10
    assert set(cell.shares) == {"vllm", "adaptive", "unlimited"}


def test_adaptive_is_above_every_other_policy_on_chats_with_windows(tmp_path: Path) -> None:
    traffic = small(small_chat, answers_return=False)
    cells = judged(tmp_path, "gpt-oss", traffic, percents=[20, 30])
    assert len(cells) == 2
    assert all(gain(cell) > 0 for cell in cells)
    assert len(cells[0].shares) == 6


def test_a_planted_loss_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``adaptive`` is played as a policy that keeps no tails inside prompts."""
    real = judge_module._policy
    monkeypatch.setattr(
        judge_module,
        "_policy",
        lambda name, groups: real("vllm" if name == "adaptive" else name, groups),
    )
    planted = judged(tmp_path / "planted", "gpt-oss", small(small_scan), percents=[90])
    assert Summary.of(planted).num_lost == 1
    assert len(list(lost_lines(planted))) == 3
    assert "| all | 1 | 1 (100 %) |" in "\n".join(summary_lines(planted))
    monkeypatch.undo()
    today = judged(tmp_path, "gpt-oss", small(small_scan), percents=[90])
    told = list(comparison_lines(today, planted))
    assert any(line.startswith("newly lost: small_scan, seed 1, gpt-oss") for line in told)


def test_another_build_plays_only_adaptive_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = judged(tmp_path, "llama", small(small_scan), percents=[50])
    played: list[str] = []
    real = judge_module._policy

    def noted(name: str, groups: Groups) -> Policy:
        played.append(name)
        return real(name, groups)

    monkeypatch.setattr(judge_module, "_policy", noted)
    assert judged(tmp_path, "llama", small(small_scan), percents=[50]) == first
    assert not played
    monkeypatch.setattr(judge_module, "build_digest", lambda: "another")
    assert judged(tmp_path, "llama", small(small_scan), percents=[50]) == first
    assert played == ["adaptive"]


def test_pools_without_room_for_what_runs_are_left_out(tmp_path: Path) -> None:
    assert has_room(150, 100)
    assert not has_room(149, 100)
    assert not judged(tmp_path, "llama", small(small_scan), percents=[1])


def test_a_trace_in_a_file_is_played_like_the_traffic_that_it_has(tmp_path: Path) -> None:
    generated = small(small_chat)
    path = tmp_path / "chat.jsonl"
    path.write_bytes(b"\n".join(generated.workload.recorded(1).lines))
    traffic = Traffics(TraceFile(path), 7)
    assert traffic.half is Half.HELD_BACK
    (found,), (expected,) = (
        judged(tmp_path, "gpt-oss", each, percents=[30]) for each in (traffic, generated)
    )
    assert found.workload == f"{tmp_path.name}/chat"
    assert (found.blocks, found.shares) == (expected.blocks, expected.shares)


def test_a_pool_may_be_a_part_of_the_distinct_tokens(tmp_path: Path) -> None:
    traffic = small(small_scan)
    ids = {each for record in records(traffic.workload, 1) for each in record["hash_ids"]}
    (cell,) = judged(tmp_path, "gpt-oss", traffic, percents=[50], whole=Whole.DISTINCT)
    num_answers = 240  # of 8 tokens, each with the end of its prompt's last block
    assert cell.blocks == (len(ids) + num_answers) // 2


def test_a_fall_is_from_any_smaller_pool() -> None:
    curve = [cell(blocks, share) for blocks, share in ((10, 50.0), (20, 49.7), (30, 49.4))]
    ((smaller, larger, fall),) = falls(curve, "adaptive")
    assert (smaller, larger, round(fall, 6)) == (curve[0], curve[2], 0.6)
    assert not falls(curve, "vllm")
    lines = list(sweep_lines(curve))
    assert "adaptive falls by 0.60 from 10 to 30 blocks" in lines


def test_a_pool_is_ample_where_the_default_is_near_unlimited() -> None:
    near = cell(10, 50.0)
    shares = {"vllm": 60.0, "unlimited": 60.9}
    assert is_ample(replace(near, shares=near.shares | shares))
    assert not is_ample(replace(near, shares=near.shares | shares | {"unlimited": 61.1}))


def cell(blocks: int, share: float) -> Cell:
    shares = {"vllm": 40.0, "adaptive": share, "unlimited": 90.0}
    return Cell("chat", 1, "tuning", "llama", blocks, blocks, shares, {}, False)
