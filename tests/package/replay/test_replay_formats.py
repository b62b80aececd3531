"""Traces in the formats of others: which one is found out, and what is played of it."""

import json
from pathlib import Path

import pytest
from kvoxide import Trace
from kvoxide.replay.reader import TraceFileError, read_trace

from tests.testing.paths import ROOT
from tests.testing.traces import succeed, write_trace

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
    "bailian": [{**ROW, "chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "turn": 1}],
    "weka": [WEKA],
    "vllm bench": [{"input_lens": [7, 5], "output_lens": [3, 0], "start_times": [1.5, 2.0]}],
}
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


def test_a_json_value_may_have_many_lines(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", json.dumps(WEKA, indent=2).encode())
    file = read_trace(path)
    assert (len(file.trace), file.trace.tokens_per_id) == (2, 64)
    rows = write_trace(tmp_path / "rows", json.dumps([ROW, ROW], indent=2).encode())
    assert len(read_trace(rows).trace) == 2
    half = write_trace(tmp_path / "half", json.dumps(WEKA, indent=2).encode()[:-5])
    with pytest.raises(TraceFileError, match="line 1: not a JSON object: EOF"):
        read_trace(half)


def test_turns_arrive_after_the_answers_before_them(tmp_path: Path) -> None:
    turns = [
        {**ROW, "session_id": "a", "timestamp": 0, "output_length": 100},
        {**ROW, "session_id": "a", "delay": 60_000},
    ]
    path = write_trace(tmp_path / "trace", lines(turns))
    rows = tmp_path / "rows.jsonl"
    steps = "base=10ms,prefill=0s,context=0s,running=0s"
    succeed("replay", path, "--arrivals", "trace", "--step-time", steps, "--per-request", rows)
    first, second = [json.loads(row) for row in rows.read_bytes().splitlines()[:2]]
    assert first["last_token"] == pytest.approx(1.0)
    assert second["arrival"] == pytest.approx(61.0)


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
    assert warnings[0].startswith("1 of 1 prompts do not begin as the one before in their session")
    whole = [{**ROW, "session_id": "a"}, {**ROW, "session_id": "a", "hash_ids": [0, 1]}]
    path = write_trace(tmp_path / "whole", lines(whole))
    assert not any("session;" in text for text in read_trace(path, tokens_per_id=16).warnings)


def test_two_formats_are_no_trace(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", lines([ROW, *TRACES["bailian"]]))
    with pytest.raises(TraceFileError, match=r"line 2: field 'chat_id': is bailian's, and the"):
        read_trace(path)
    file = read_trace(path, skip_bad=True)
    assert (len(file.trace), file.bad_lines) == (1, 1)


def test_a_row_of_a_table_is_named(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", TABLES["burstgpt"] + b"9,ChatGPT,0,1,1,API log\n")
    with pytest.raises(TraceFileError, match=r"line 3: field 'Request tokens': is \"0\"; expected"):
        read_trace(path)
