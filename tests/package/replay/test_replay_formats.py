"""Traces in the formats of others: which one is found out, and what is played of it."""

import json
from pathlib import Path

import pytest
from kvoxide import Trace
from kvoxide.lab.replay.input import read_trace
from kvoxide.lab.replay.input.trace_file import TraceFileError

from tests.testing.paths import ROOT
from tests.testing.traces import kvoxide, replay_json, succeed, write_trace

QWEN = ROOT / "tests/vllm/models/configs/qwen3-8b.json"
ROW = {"input_length": 32, "output_length": 1, "hash_ids": [0, 1]}
WEKA = {
    "id": "one",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        {"t": 0.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0},
        {"t": 5.0, "type": "n", "in": 200, "out": 5, "hash_ids": [1, 2, 3]},
    ],
}
TRACES = {
    "mooncake": [ROW],
    "aiperf": [{**ROW, "session_id": "a", "timestamp": 0}, {**ROW, "session_id": "a", "delay": 5}],
    "dynamo": [{**ROW, "created_time": 0.5, "priority": 120}],
    "bailian": [
        {**ROW, "input_length": 32, "chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "turn": 1}
    ],
    "weka": [WEKA],
    "vllm bench": [{"input_lens": [7, 5], "output_lens": [3, 0], "start_times": [1.5, 2.0]}],
}
HEAD = {
    "schema": "dynamo.agentic_mooncake",
    "version": 2,
    "block_size": 64,
    "hash_id_scope": "local",
    "source": {"format": "test", "digest": "none"},
}
CLOCK = ("--arrivals", "closed", "--step-time", "base=10ms,prefill=0s,context=0s,running=0s")
TABLES = {
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n",
    "burstgpt": b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n",
}


def lines(records: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


CONTENTS = {**{name: lines(records) for name, records in TRACES.items()}, **TABLES}


@pytest.mark.parametrize("name", CONTENTS)
def test_the_format_is_found_out_and_can_be_given(tmp_path: Path, name: str) -> None:
    path = write_trace(tmp_path / "trace", CONTENTS[name])
    assert read_trace(path).trace.format == name
    assert read_trace(path, format=name).trace.format == name
    assert name in Trace.formats()


def test_the_table_and_json_say_which_format_it_was(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", TABLES["azure"])
    record = tmp_path / "record.json"
    result = succeed("replay", path, "--json", record)
    assert "1 requests, 4,808 prompt tokens, 10 output tokens; format azure" in result.output
    assert "prompts share nothing, and nothing is hit" in result.output
    trace = json.loads(record.read_bytes())["trace"]
    assert trace["format"] == "azure"
    assert len(trace["notes"]) == 1


def test_ids_that_number_the_blocks_of_each_prompt_are_told(tmp_path: Path) -> None:
    rows = [{**ROW, "input_length": 16 * n, "hash_ids": list(range(n))} for n in (2, 3, 4)]
    result = succeed("replay", write_trace(tmp_path / "trace", lines(rows)))
    assert "the ids of every prompt count from 0" in result.output
    result = succeed(
        "replay", write_trace(tmp_path / "trace", lines([*rows, {**ROW, "hash_ids": [5, 6]}]))
    )
    assert "count from 0" not in result.output


def test_a_json_value_may_have_many_lines(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", json.dumps(WEKA, indent=2).encode())
    file = read_trace(path)
    assert (len(file.trace), file.trace.tokens_per_id) == (2, 64)
    rows = write_trace(tmp_path / "rows", json.dumps([ROW, ROW], indent=2).encode())
    assert len(read_trace(rows).trace) == 2
    half = write_trace(tmp_path / "half", json.dumps(WEKA, indent=2).encode()[:-5])
    with pytest.raises(TraceFileError, match="line 1: the line is not a JSON object: EOF"):
        read_trace(half)


def test_turns_arrive_after_the_answers_before_them(tmp_path: Path) -> None:
    turns = [
        {**ROW, "session_id": "a", "timestamp": 0, "output_length": 100},
        {**ROW, "session_id": "a", "delay": 60_000},
    ]
    path = write_trace(tmp_path / "trace", lines(turns))
    first, second = played(tmp_path, path)
    assert first["last_token"] == pytest.approx(1.0)
    assert second["arrival"] == pytest.approx(61.0)


def test_turns_that_wait_for_answers_are_played_in_a_closed_loop(tmp_path: Path) -> None:
    turns = [
        {**ROW, "session_id": "a", "timestamp": 0, "output_length": 100},
        {**ROW, "session_id": "a", "delay": 60_000},
    ]
    path = write_trace(tmp_path / "trace", lines(turns))
    result = succeed("replay", path)
    assert "closed loop: requests that wait for earlier answers arrive after" in result.stderr
    closed, asked, timed, full = (
        replay_json(tmp_path, path, *options)["results"][0]["serving"]
        for options in ([], *(["--arrivals", name] for name in ("closed", "trace", "full")))
    )
    # The second turn has no time of its own, so it waits in an open loop, too.
    assert closed == asked == timed
    assert closed["makespan"] > 60
    assert full is None
    # Without a time of the first request, only the order of requests is known.
    path = write_trace(tmp_path / "other", lines([{**turns[0], "timestamp": None}, turns[1]]))
    assert not read_trace(path).trace.is_closed_loop
    assert "closed loop" not in succeed("replay", path).stderr


def played(tmp_path: Path, path: str, *options: str) -> list[dict[str, float]]:
    """The requests of a trace as they were played at its times, with steps of 10 ms."""
    rows = tmp_path / "rows.jsonl"
    succeed("replay", path, *CLOCK, "--blocks", "5000", "--per-request", rows, *options)
    requests = [json.loads(row) for row in rows.read_bytes().splitlines()]
    return [request for request in requests if request["policy"] != "unlimited"]


def test_requests_may_wait_for_those_of_later_lines(tmp_path: Path) -> None:
    rows = [
        {**ROW, "request_id": "c", "wait_for": ["a", "b"], "tool_wait_ms": 500},
        {**ROW, "request_id": "b", "timestamp": 2_000, "output_length": 100},
        {**ROW, "request_id": "a", "timestamp": 1_000},
    ]
    requests = played(tmp_path, write_trace(tmp_path / "trace", lines(rows)))
    arrivals = [request["arrival"] for request in requests]
    assert arrivals == pytest.approx([0.0, 1.0, 2.5])
    assert [request["last_token"] for request in requests][1] == pytest.approx(2.0)


def test_waits_without_end_are_refused_or_left_out(tmp_path: Path) -> None:
    first = {**ROW, "request_id": "a", "wait_for": ["z"]}
    behind = {**ROW, "request_id": "b", "wait_for": ["a"]}
    path = write_trace(tmp_path / "trace", lines([first, behind, {**ROW, "timestamp": 0}]))
    with pytest.raises(TraceFileError, match=r"trace: field 'wait_for' of request 1 is \"z\", but"):
        read_trace(path)
    file = read_trace(path, skip_bad=True)
    assert (len(file.trace), file.bad_lines) == (1, 2)
    with pytest.raises(TraceFileError, match=r"holds no request$"):
        read_trace(path, limit=2)
    circle = write_trace(tmp_path / "circle", lines([{**first, "wait_for": ["b"]}, behind]))
    with pytest.raises(TraceFileError, match="wait for each other in a circle: 1, 2"):
        read_trace(circle)


def test_first_requests_may_wait_for_others_than_them(tmp_path: Path) -> None:
    rows = [
        {**ROW, "request_id": "a", "timestamp": 0},
        {**ROW, "request_id": "b", "wait_for": ["c"]},
        {**ROW, "request_id": "c", "wait_for": ["a"]},
    ]
    path = write_trace(tmp_path / "trace", lines(rows))
    file = read_trace(path, limit=2)
    assert (len(file.trace), file.bad_lines) == (1, 0)
    assert file.notes[0].startswith("requests left out, because they wait forever: 1; ")
    assert len(read_trace(path, limit=3).trace) == 3


def test_a_trace_of_dynamos_agents_is_played(tmp_path: Path) -> None:
    row = {
        "play_id": "p",
        "session_id": "s",
        "model": "m",
        "input_length": 200,
        "output_length": 50,
    }
    after = {"request_id": "a", "relation": "spawn", "trigger": "dispatch", "delay_ms": 100}
    then = {"request_id": "a", "relation": "sequence", "trigger": "completion", "delay_ms": 100}
    rows = [
        {**row, "request_id": "c", "hash_ids": [1, 2, 3, 4], "not_before_ms": 0},
        {**row, "request_id": "b", "hash_ids": [1, 2, 3, 5], "not_before_ms": 900},
        {**row, "request_id": "a", "hash_ids": [1, 2, 8, 9], "not_before_ms": 200},
    ]
    rows[0]["dependencies"], rows[1]["dependencies"] = [then], [after]
    path = write_trace(tmp_path / "trace", lines([HEAD, *rows]))
    arrivals = [request["arrival"] for request in played(tmp_path, path)]
    assert arrivals == pytest.approx([0.0, 0.6, 0.7])  # 0.5 s of answer, and 0.1 s
    results = replay_json(tmp_path, path, "--groups", "full:16", "--blocks", "500")["results"]
    assert results[0]["hit_tokens"] == 128 + 192


def test_events_of_dynamo_are_played(tmp_path: Path) -> None:
    def event(name: str, start: int, hashes: list[int], session: str = "s") -> dict[str, object]:
        replay = {"trace_block_size": 16, "input_length": 40, "input_sequence_hashes": hashes}
        times = {"request_received_ms": start, "total_time_ms": 100.0}
        request = {"request_id": name, "output_tokens": 4, **times, "replay": replay}
        head = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
        return {**head, "agent_context": {"session_id": session}, "request": request}

    events = [
        event("b", 1_777_312_801_000, [2**64 - 1, 7, 8]),
        event("a", 1_777_312_800_000, [9, 7, 8]),
    ]
    path = write_trace(tmp_path / "trace", lines(events))
    assert read_trace(path).trace.tokens_per_id == 16
    arrivals = [request["arrival"] for request in played(tmp_path, path)]
    assert arrivals == pytest.approx([0.0, 0.04 + 0.9])


@pytest.mark.parametrize(("width", "hit"), [(512, 1024), (640, 1280)])
def test_ids_of_many_blocks_with_a_rest(tmp_path: Path, width: int, hit: int) -> None:
    """Two ids and a part of a third: what both prompts share ends with the second id."""
    size = {} if width == 512 else {"block_size": width}
    row = {**size, "input_length": 2 * width + 100, "output_length": 1}
    rows = [{**row, "hash_ids": [1, 2, 3]}, {**row, "hash_ids": [1, 2, 4]}]
    path = write_trace(tmp_path / "trace", lines(rows))
    record = replay_json(tmp_path, path, "--groups", "full:16", "--blocks", "500")
    assert record["trace"]["tokens_per_id"] == width
    assert [result["hit_tokens"] for result in record["results"]] == [hit, hit]
    again = write_trace(tmp_path / "again", lines([rows[0], rows[0]]))
    record = replay_json(tmp_path, again, "--groups", "full:16", "--blocks", "500")
    whole = (2 * width + 100 - 1) // 16 * 16
    assert record["results"][0]["hit_tokens"] == whole


@pytest.mark.parametrize("num_tokens", [15, 17])
def test_as_many_tokens_of_an_output_as_it_has(tmp_path: Path, num_tokens: int) -> None:
    row = {**ROW, "output_length": 16, "output_token_ids": [7] * num_tokens}
    result = kvoxide("replay", write_trace(tmp_path / "trace", lines([row])))
    assert result.exit_code == 1
    assert (
        f"line 1: field 'output_token_ids' has {num_tokens} tokens; output_length is 16"
        in result.output
    )


def test_plan_plays_turns_that_wait(tmp_path: Path) -> None:
    turns = [{**ROW, "session_id": "a", "timestamp": 0}, {**ROW, "session_id": "a", "delay": 5}]
    path = write_trace(tmp_path / "trace", lines(turns))
    model: list[str | Path] = ["--model", QWEN, "--max-model-len", "8192"]
    result = succeed("plan", path, *model, "--memory", "2GiB", "--target", "ttft_p99<9s")
    assert " yes" in result.output


def test_prompts_that_hold_only_what_is_new_are_warned_of(tmp_path: Path) -> None:
    turns = [{**ROW, "session_id": "a"}, {**ROW, "session_id": "a", "hash_ids": [2, 3]}]
    path = write_trace(tmp_path / "trace", lines(turns))
    warnings = read_trace(path, tokens_per_id=16).warnings
    assert warnings[0].startswith("1 of 1 prompts share nothing with the previous prompt of their")
    whole = [{**ROW, "session_id": "a"}, {**ROW, "session_id": "a", "hash_ids": [0, 1]}]
    path = write_trace(tmp_path / "whole", lines(whole))
    assert not any("session;" in text for text in read_trace(path, tokens_per_id=16).warnings)


def test_two_formats_are_no_trace(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", lines([ROW, *TRACES["bailian"]]))
    with pytest.raises(TraceFileError, match=r"line 2: field 'chat_id' is a field of bailian, but"):
        read_trace(path)
    file = read_trace(path, skip_bad=True)
    assert (len(file.trace), file.bad_lines) == (1, 1)


def test_a_row_of_a_table_is_named(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", TABLES["burstgpt"] + b"9,ChatGPT,0,1,1,API log\n")
    with pytest.raises(TraceFileError, match=r"line 3: field 'Request tokens' is \"0\"; expected"):
        read_trace(path)
