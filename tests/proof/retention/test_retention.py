"""Tests of the judge of retention: its traffic, its pools, its halves, and that it finds a loss."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kvoxide.lab.replay.input import Groups, NamedPolicy, preset_groups

from tests.proof.retention import playing
from tests.proof.retention.cells import PRESETS, SHARES, Half, Loop, Traffics, chosen
from tests.proof.retention.fleet import Row, part_of_the_way, table
from tests.proof.retention.judge import Cell, Judge
from tests.proof.retention.known import KnownResults, Played
from tests.proof.retention.playing import ADAPTIVE, WITH_ENDS, PlayedTraffic
from tests.proof.retention.pools import chosen_pools, first_place, sizes_of
from tests.proof.retention.sweep import falls, sweep_lines
from tests.proof.retention.traffic import TOKENS_PER_ID, Traffic
from tests.proof.retention.verdict import (
    Summary,
    comparison_lines,
    ends_lines,
    gain,
    latency_lines,
    lost_lines,
    mean_lines,
    policy_lines,
    rival_lines,
    summary_lines,
)
from tests.proof.retention.workloads import TraceFile, Workload, workloads

CLOSED = (Loop.CLOSED,)


def small_scan(traffic: Traffic) -> None:
    """Ask about 24 documents in turns. LRU hits none of them in a pool that holds half."""
    documents = [traffic.fresh(2000) for _ in range(24)]
    for number in range(240):
        prompt = traffic.text(documents[number % 24], traffic.fresh(60))
        traffic.ask(number * 0.5, prompt, traffic.fresh(8), number)


def small_chat(traffic: Traffic) -> None:
    system = traffic.fresh(300)
    for conversation in range(30):
        text, session = traffic.text(system), traffic.session(conversation, conversation * 2)
        for _ in range(4):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(900, 0.5)))
            text = session.ask(text, traffic.fresh(traffic.whole(20, 200)))
            session.pause(20.0)
        session.end()


def small(generator: Any) -> Traffics:
    return Traffics(Workload(generator.__name__, generator), 1)


def judged(folder: Path, preset: str, traffic: Traffics, **settings: Any) -> list[Cell]:
    known = KnownResults(folder / "known.jsonl", Played)
    return list(Judge(known, [preset], **settings).cells([traffic], jobs=1))


def played(folder: Path, traffic: Traffics) -> PlayedTraffic:
    recorded = traffic.workload.recorded(traffic.seed)
    return PlayedTraffic(KnownResults(folder / "known.jsonl", Played), recorded)


def records(workload: Workload | TraceFile, seed: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in workload.recorded(seed).lines]


def test_a_seed_decides_the_traffic() -> None:
    for workload in (workloads()["regenerated-chat"], small(small_chat).workload):
        first = workload.recorded(1)
        assert first == workload.recorded(1)
        assert first.digest != workload.recorded(2).digest
        assert len(first.trace()) == len(first.lines) == len(first.request_lengths())


def test_prompts_share_ids_as_far_as_they_share_tokens() -> None:
    traffic = Traffic("any", 1)
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


def test_answers_come_back_in_the_next_prompt() -> None:
    rows = records(small(small_chat).workload, 1)
    first, second = [row for row in rows if row["session_id"] == "0"][:2]
    ids = [*first["hash_ids"], *first["output_hash_ids"]]
    num_shared = (first["input_length"] + first["output_length"]) // TOKENS_PER_ID
    assert second["hash_ids"][:num_shared] == ids[:num_shared]


def test_a_session_has_delays_and_an_end() -> None:
    rows = [row for row in records(small(small_chat).workload, 1) if row["session_id"] == "0"]
    assert [row.get("delay") for row in rows] == [None, 20_000, 20_000, 20_000]
    assert [row.get("session_end", False) for row in rows] == [False, False, False, True]
    gaps = [b["timestamp"] - a["timestamp"] for a, b in pairwise(rows)]
    assert gaps == [20_000 + 12 * row["output_length"] for row in rows[:-1]]


def test_a_parent_waits_for_all_of_its_children() -> None:
    traffic = Traffic("any", 1)
    parent = traffic.session("parent", 0.0)
    text = parent.ask(traffic.text(traffic.fresh(40)), traffic.fresh(10))
    parent.pause(1.0)
    children = [parent.fork(f"child {number}") for number in range(2)]
    for number, child in enumerate(children):
        child.ask(traffic.text(traffic.fresh(30)), traffic.fresh(100 * (number + 1)))
    parent.join(children)
    parent.pause(2.0)
    parent.ask(text, traffic.fresh(1))
    first, *both, last = (json.loads(line) for line in traffic.lines())
    assert [child["wait_for"] for child in both] == [[first["request_id"]]] * 2
    assert [child["delay"] for child in both] == [1000, 1000]
    assert last["wait_for"] == [child["request_id"] for child in both]
    assert (last["delay"], last["timestamp"]) == (2000, 120 + 1000 + 2400 + 2000)


def test_every_workload_says_where_it_is_from() -> None:
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
        assert Half.of(workload, 4) is Half.HELD_BACK
    # There are enough cells if some pools are the same.
    assert len(tuning) * len(PRESETS) * len(SHARES) >= 400


def test_a_pool_has_the_share_of_the_hits_for_which_it_was_chosen(tmp_path: Path) -> None:
    traffic, groups = played(tmp_path, small(small_chat)), preset_groups("llama")
    sizes, whole = sizes_of(traffic, groups), traffic.unlimited(groups)
    pools = chosen_pools(traffic, groups, SHARES)
    assert [pool.blocks for pool in pools] == sorted({pool.blocks for pool in pools})
    assert pools[-1].share == 90
    for pool in pools:
        share = [
            100 * (traffic.run(groups, "vllm", blocks).bound_tokens or 0) / whole.hit_tokens
            for blocks in (pool.blocks, sizes[max(0, sizes.index(pool.blocks) - 1)])
        ]
        assert share[0] >= pool.share
        assert share[1] < pool.share or pool.blocks == sizes[0]
    assert 2 * sizes[0] >= whole.peak_used_blocks


def test_the_first_place_is_found_with_few_looks() -> None:
    for answer in range(18):
        looks: list[int] = []

        def holds(place: int, answer: int = answer, looks: list[int] = looks) -> bool:
            looks.append(place)
            return place >= answer

        assert first_place(holds, 0, 17) == answer
        assert len(looks) <= 5


def test_adaptive_keeps_a_part_of_a_scan(tmp_path: Path) -> None:
    cells = judged(tmp_path, "llama", small(small_scan), shares=[30, 60], loops=CLOSED)
    policies = {"vllm", "session-lru", "t-lru", "s3-fifo", "arc", "adaptive"}
    for cell in cells:
        assert cell.shares["vllm"] < 5
        assert cell.shares["adaptive"] > cell.shares["vllm"] + 10
        assert set(cell.shares) == policies | {"clairvoyant", "unlimited"}
        assert cell.shares["clairvoyant"] >= max(cell.shares[policy] for policy in policies)


def test_cells_of_both_loops_are_in_one_table(tmp_path: Path) -> None:
    settings = {"shares": [60], "policies": ["vllm", "adaptive"], "multiples": (0.9, 1.0, 1.1)}
    cells = judged(tmp_path, "gpt-oss", small(small_chat), **settings)
    assert [cell.loop for cell in cells] == ["closed", "open"] * 3
    assert len({cell.blocks for cell in cells}) == 3
    lines = list(summary_lines(cells))
    assert lines[0].count("closed: ") == lines[0].count("open: ") == 4
    assert lines[2].startswith("| all | 3 | ")
    assert any(line.startswith("| closed, all | 3 |") for line in policy_lines(cells))
    assert any(line.startswith("| open, all | 3 |") for line in latency_lines(cells))
    # In the closed loop, requests arrive after answers that take longer than the open loop says.
    closed, open_loop = cells[:2]
    assert closed.first_token != open_loop.first_token


def test_ends_of_sessions_count_only_where_they_are_heeded(tmp_path: Path) -> None:
    traffic = small(small_chat)
    with_ends = played(tmp_path, traffic)
    groups = preset_groups("llama")
    silent = with_ends.recorded.without_session_ends()
    assert not any(b"session_end" in line for line in silent.lines)
    assert silent.without_session_ends() is silent
    blocks = chosen_pools(with_ends, groups, [60])[0].blocks
    heeded, ignored = (with_ends.run(groups, policy, blocks) for policy in (WITH_ENDS, ADAPTIVE))
    assert heeded.hit_tokens > ignored.hit_tokens
    said_nothing = PlayedTraffic(with_ends.known, silent)
    assert said_nothing.run(groups, ADAPTIVE, blocks) == ignored
    (cell,) = judged(tmp_path, "llama", traffic, shares=[60], loops=CLOSED)
    gained = f"{cell.shares[WITH_ENDS] - cell.shares[ADAPTIVE]:+.2f}"
    lines = list(ends_lines([cell]))
    assert lines[-1].startswith("| closed, all | 1 | ")
    assert lines[-1].endswith(f" | {gained} | {gained} |")
    (cell,) = judged(tmp_path, "llama", small(small_scan), shares=[60], loops=CLOSED)
    assert WITH_ENDS not in cell.shares
    assert len(list(ends_lines([cell]))) == 2


def test_means_are_of_seeds_and_neighbours() -> None:
    lost, won = cell(10, 44.0), replace(cell(11, 47.0), seed=2)
    other = replace(cell(10, 44.0), preset="gpt-oss")
    row = list(mean_lines([lost, won, other]))[2]
    assert row == "| all | 2 | 1 (50 %) | -1.00 | -0.25 | +4.75 |"


def test_each_policy_is_compared_with_the_best_of_the_others() -> None:
    cells = [cell(10, 50.0), cell(20, 44.0)]
    rows = list(rival_lines(cells))[2:]
    assert rows == [
        "| closed, vllm | 2 | 2 (100 %) | -10.00 | -7.50 |",
        "| closed, arc | 2 | 1 (50 %) | -5.00 | -2.00 |",
        "| closed, adaptive | 2 | 1 (50 %) | -1.00 | +2.00 |",
    ]


def test_a_planted_loss_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``adaptive`` is played as vLLM's default, which hits nothing of a scan."""
    real = playing._policy
    monkeypatch.setattr(
        playing,
        "_policy",
        lambda name, groups: real("vllm" if name == "adaptive" else name, groups),
    )
    settings: dict[str, Any] = {
        "shares": [60],
        "loops": CLOSED,
        "policies": ["vllm", "s3-fifo", "adaptive"],
    }
    planted = judged(tmp_path / "planted", "llama", small(small_scan), **settings)
    assert Summary.of(planted).num_lost == 1
    assert len(list(lost_lines(planted))) == 3
    assert "| all | 1 | 1 (100 %) |" in "\n".join(summary_lines(planted))
    monkeypatch.undo()
    today = judged(tmp_path, "llama", small(small_scan), **settings)
    lines = list(comparison_lines(today, planted))
    assert any(line.startswith("newly lost: small_scan, seed 1, llama") for line in lines)


def test_another_build_plays_only_adaptive_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"shares": [60], "loops": CLOSED}
    first = judged(tmp_path, "llama", small(small_scan), **settings)
    again: list[str] = []
    real = playing._policy

    def noted(name: str, groups: Groups) -> NamedPolicy:
        again.append(name)
        return real(name, groups)

    monkeypatch.setattr(playing, "_policy", noted)
    assert judged(tmp_path, "llama", small(small_scan), **settings) == first
    assert not again
    monkeypatch.setattr(playing, "build_digest", lambda: "another")
    assert judged(tmp_path, "llama", small(small_scan), **settings) == first
    assert again == ["adaptive"]


def test_a_trace_in_a_file_is_played_like_the_traffic_that_it_has(tmp_path: Path) -> None:
    generated = small(small_chat)
    path = tmp_path / "chat.jsonl"
    path.write_bytes(b"\n".join(generated.workload.recorded(1).lines))
    traffic = Traffics(TraceFile(path), 7)
    assert traffic.half is Half.HELD_BACK
    settings: dict[str, Any] = {"shares": [60], "policies": ["vllm", "adaptive"]}
    found, expected = (
        judged(tmp_path, "gpt-oss", each, **settings) for each in (traffic, generated)
    )
    assert found[0].workload == f"{tmp_path.name}/chat"
    assert [(cell.blocks, cell.shares) for cell in found] == [
        (cell.blocks, cell.shares) for cell in expected
    ]


def test_a_fall_is_from_any_smaller_pool() -> None:
    curve = [cell(blocks, share) for blocks, share in ((10, 50.0), (20, 49.7), (30, 49.4))]
    ((smaller, larger, fall),) = falls(curve, "adaptive")
    assert (smaller, larger, round(fall, 6)) == (curve[0], curve[2], 0.6)
    assert not falls(curve, "vllm")
    lines = list(sweep_lines(curve))
    assert "adaptive falls by 0.60 from 10 to 30 blocks" in lines


def test_a_higher_first_token_time_is_counted() -> None:
    slow = replace(cell(10, 50.0), first_token={"vllm": (1.0, 4.0), "adaptive": (0.5, 5.0)})
    fast = replace(slow, first_token={"vllm": (1.0, 4.0), "adaptive": (0.5, 4.01)})
    row = next(line for line in latency_lines([slow, fast]) if line.startswith("| closed, all"))
    assert row == "| closed, all | 2 | -50.0 % | +12.6 % | 1 | +25 % |"


def test_the_fleet_says_which_part_of_the_way_is_gone() -> None:
    before = Row("gpt-oss", 10, default=30.0, adaptive=40.0, clairvoyant=60.0)
    after = replace(before, adaptive=50.0)
    assert part_of_the_way(before, after) == 0.5
    assert table([after], [before])[-1] == "| gpt-oss | 10 | 30.0 | 50.0 | 60.0 | 40.0 | 50% |"
    assert table([after], [])[-1] == "| gpt-oss | 10 | 30.0 | 50.0 | 60.0 |"


def test_gains_are_against_the_best_other_policy() -> None:
    assert round(gain(cell(10, 50.0)), 6) == 5.0


def cell(blocks: int, share: float) -> Cell:
    shares = {"vllm": 40.0, "arc": 45.0, "adaptive": share, "clairvoyant": 80.0, "unlimited": 90.0}
    times = {"vllm": (1.0, 2.0), "adaptive": (1.0, 2.0)}
    return Cell("chat", "chats", 1, "tuning", "llama", 30, blocks, "closed", shares, times)
