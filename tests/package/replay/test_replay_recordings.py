"""Recordings of servers: several schedulers, files that end too early, and headers at fault."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide._core import TraceError
from kvoxide.lab.replay.input import read_deployment, read_steps, read_trace
from kvoxide.lab.replay.input.trace_file import TraceFileError

from tests.testing.pages import replay_page
from tests.testing.paths import ROOT
from tests.testing.traces import kvoxide, replay_json, succeed
from tests.testing.vllm_releases import NEWEST

HEADER: dict[str, Any] = {
    "kvoxide_recording": 1,
    "recording": "a",
    "kind": "requests",
    "rank": 0,
    "started": 1000.0,
    "tokens_per_id": 16,
    "vllm": NEWEST,
    "num_blocks": 60,
    "max_running_requests": 3,
    "max_batched_tokens": 64,
    "groups": [
        {"kind": "full_attention", "block_size": 16, "cached": True},
        {"kind": "sliding_window", "block_size": 16, "cached": True, "sliding_window": 32},
    ],
    "policy": "uncached-first",
}


def write(folder: Path, number: int, *records: dict[str, Any], **changes: Any) -> Path:
    """A file with a member for each line."""
    folder.mkdir(exist_ok=True)
    path = folder / f"requests-{changes.get('rank', 0)}-7-{number:04}.jsonl.gz"
    members = [json.dumps(record).encode() + b"\n" for record in ({**HEADER, **changes}, *records)]
    path.write_bytes(b"".join(map(gzip.compress, members)))
    return path


def request(
    timestamp: float, ids: list[int], output_ids: list[int] | None = None, **more: Any
) -> dict[str, Any]:
    """All blocks of the prompt are full but the last, which has half of its tokens."""
    return {
        "timestamp": timestamp,
        "input_length": 16 * len(ids) - 8,
        "output_length": 16 * len(output_ids or []) + 9,
        "hash_ids": ids,
        "output_hash_ids": output_ids or [],
        **more,
    }


TURNS = (request(0, [0, 1], [2, 3]), request(900, [0, 1, 2, 3, 4]))


def test_a_folder_is_played_on_what_its_server_had(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS)
    record = replay_json(tmp_path, str(tmp_path / "r"), "--arrivals", "trace")
    settings = record["settings"]
    assert (settings["groups"], settings["blocks"]) == ("full:16,swa:16:32", [60])
    assert (settings["concurrency"], settings["max_batched_tokens"]) == (3, 64)
    # The answer to the first turn is hit by the second.
    assert record["results"][0]["hit_tokens"] == 64
    assert record["trace"]["cut_off_files"] == 0
    done = succeed("replay", tmp_path / "r", "--answers-return")
    assert "answers come back; --answers-return changes nothing" in done.stderr
    given = ["--groups", "full:32", "--blocks", "90", "--concurrency", "7"]
    settings = replay_json(tmp_path, str(tmp_path / "r"), *given)["settings"]
    assert (settings["groups"], settings["blocks"], settings["concurrency"]) == ("full:32", [90], 7)


@pytest.mark.parametrize("policy", ["vllm", "interval=0", None])
def test_the_policy_is_that_of_the_server(tmp_path: Path, policy: str | None) -> None:
    write(tmp_path / "r", 0, *TURNS, policy=policy)
    record = replay_json(tmp_path, str(tmp_path / "r"))
    assert record["settings"]["policies"] == [policy or "vllm"]
    # The answer to the first turn is after the last tail that is kept.
    assert record["results"][0]["hit_tokens"] == 16
    given = replay_json(tmp_path, str(tmp_path / "r"), "--policy", "fifo")
    assert given["settings"]["policies"] == ["fifo"]
    other = replay_json(tmp_path, str(tmp_path / "r"), "--groups", "full:32")
    assert other["settings"]["policies"] == ["vllm"]
    every_tail = ("--policy", "uncached-first", "--arrivals", "trace")
    assert replay_json(tmp_path, str(tmp_path / "r"), *every_tail)["results"][0]["hit_tokens"] == 64


def test_a_recording_has_a_page(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS)
    cut = write(tmp_path / "r", 1, *(request(i, [i + 9]) for i in range(50)))
    cut.write_bytes(cut.read_bytes()[:-30])
    page, record = replay_page(tmp_path, tmp_path / "r", "--arrivals", "trace")
    told = page.texts["dd"]
    assert {"60 blocks", "3 requests at a time, 64 tokens per step"} <= set(told)
    assert "Files that end too early" in page.texts["dt"]
    (row,) = [row for row in page.table("hit\ntokens") if row["policy"] == "unlimited"]
    assert row["requests"] == str(record["trace"]["requests"]) == "51"


def test_a_plan_for_a_recording(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS)
    model = ("--model", QWEN, "--memory", "10GiB")
    path = tmp_path / "plan.json"
    succeed("plan", tmp_path / "r", *model, "--target", "hit_share>30%", "--json", path)
    record = json.loads(path.read_bytes())
    assert [best["instances"] for best in record["cheapest"]] == [1, 1]
    assert record["verdicts"][0]["figures"]["hit_share"]["value"] == 64 / 96


def two_ranks(folder: Path) -> str:
    """Write a conversation on each rank, and a third that continues the first. Equal ids of the two
    ranks mean different blocks."""
    write(folder, 0, *TURNS, request(2000, [0, 1, 7]))
    write(folder, 0, *TURNS, rank=1, recording="b", started=1000.05)
    return str(folder)


def test_ranks_are_instances_that_serve_what_they_served(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "r")
    record = replay_json(tmp_path, folder, "--arrivals", "trace")
    serving = record["settings"]["serving"]
    assert (serving["instances"], serving["router"]) == (2, "recorded")
    instances = record["results"][0]["serving"]["instances"]
    assert [each["requests"] for each in instances] == [3, 2]
    assert [each["hit_tokens"] for each in instances] == [64 + 32, 64]


def test_ranks_may_be_played_otherwise(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "r")
    one = replay_json(tmp_path, folder, "--arrivals", "trace", "--instances", "1")
    assert one["settings"]["serving"]["instances"] == 1
    turns = replay_json(tmp_path, folder, "--arrivals", "trace", "--instances", "2")
    assert turns["settings"]["serving"]["router"] == "round-robin"
    prefix = replay_json(tmp_path, folder, "--arrivals", "trace", "--router", "prefix")
    serving = prefix["settings"]["serving"]
    assert (serving["instances"], serving["router"]) == (2, "prefix")
    rank = next((tmp_path / "r").glob("requests-1-*"))
    alone = replay_json(tmp_path, str(rank), "--arrivals", "trace")
    assert alone["settings"]["serving"]["instances"] == 1
    assert alone["results"][0]["hit_tokens"] == 64


def test_other_traces_do_not_tell_who_served_them(tmp_path: Path) -> None:
    refused = kvoxide("replay", "sample", "--instances", "2", "--router", "recorded")
    assert refused.exit_code == 1
    assert "request 1 names no instance" in refused.output


QWEN = ROOT / "tests/vllm/models/configs/qwen3-8b.json"
SERVED_AS = {
    "tensor_parallel": 2,
    "pipeline_parallel": 1,
    "cache_dtype": "fp8",
    "given_block_size": 64,
    "max_model_len": 4096,
}


def test_a_plan_is_for_what_the_server_had(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS, **SERVED_AS)
    path = tmp_path / "plan.json"
    command = ("plan", tmp_path / "r", "--model", QWEN, "--memory", "10GiB")
    target = ("--target", "hit_share>1%", "--instances", "1", "--json", path)
    succeed(*command, *target)
    settings = json.loads(path.read_bytes())["settings"]
    assert (settings["concurrency"], settings["max_batched_tokens"]) == (3, 64)
    model = settings["model"]
    assert (model["tensor_parallel"], model["cache_dtype"]) == (2, "fp8")
    assert (model["block_size"], model["max_model_len"]) == (64, 4096)
    assert settings["serving"]["arrivals"] == "trace"
    given = ("--concurrency", "9", "--block-size", "16", "--tensor-parallel", "1")
    succeed(*command, *target, *given)
    settings = json.loads(path.read_bytes())["settings"]
    assert (settings["concurrency"], settings["max_batched_tokens"]) == (9, 64)
    model = settings["model"]
    assert (model["block_size"], model["tensor_parallel"], model["cache_dtype"]) == (16, 1, "fp8")


def test_a_replay_of_another_model_is_served_as_the_recorded_one(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS, **SERVED_AS)
    model = ("--model", str(QWEN), "--memory", "10GiB")
    settings = replay_json(tmp_path, str(tmp_path / "r"), *model)["settings"]
    assert (settings["groups"], settings["model"]["max_model_len"]) == ("full:64", 4096)
    given = ("--block-size", "32", "--max-model-len", "8192")
    settings = replay_json(tmp_path, str(tmp_path / "r"), *model, *given)["settings"]
    assert (settings["groups"], settings["model"]["max_model_len"]) == ("full:32", 8192)


def test_a_precision_that_is_not_planned_has_to_be_given(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS, **{**SERVED_AS, "cache_dtype": "fp8_e5m2"})
    command = ("replay", tmp_path / "r", "--model", QWEN, "--memory", "10GiB")
    refused = kvoxide(*command)
    assert refused.exit_code == 2
    assert "the recorded server had --kv-cache-dtype fp8_e5m2" in refused.stderr
    succeed(*command, "--kv-cache-dtype", "fp8")
    succeed("replay", tmp_path / "r")


def test_a_single_file_is_a_recording_too(tmp_path: Path) -> None:
    path = write(tmp_path / "r", 0, *TURNS)
    assert len(read_trace(str(path)).trace) == 2
    path.write_bytes(gzip.decompress(path.read_bytes()))
    assert read_trace(str(path)).trace.tokens_per_id == 16


def test_lines_are_played_in_the_order_of_arrival(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, TURNS[1], TURNS[0])
    record = replay_json(tmp_path, str(tmp_path / "r"), "--concurrency", "1")
    assert record["results"][0]["hit_tokens"] == 64
    assert read_trace(str(tmp_path / "r"), limit=1).trace.num_prompt_tokens == 24


@pytest.mark.parametrize("instances", ["1", "2"])
def test_schedulers_have_ids_of_their_own(tmp_path: Path, instances: str) -> None:
    write(tmp_path / "r", 0, TURNS[0])
    write(tmp_path / "r", 1, TURNS[1])
    write(tmp_path / "r", 2, *TURNS, recording="b", started=1000.05)
    record = replay_json(
        tmp_path, str(tmp_path / "r"), "--arrivals", "trace", "--instances", instances,
        "--per-request", str(tmp_path / "lines")
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "lines").open()][:4]
    assert [line["arrival"] for line in lines] == [0.0, 0.05, 0.9, 0.95]
    if instances == "1":
        assert [line["hit_tokens"] for line in lines] == [0, 0, 64, 64]
    assert record["trace"]["requests"] == 4


@pytest.mark.parametrize("cut", [1, 5, 30, 100])
def test_a_file_that_was_cut_off_is_played_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "r", 0, *(request(i, [i]) for i in range(100)))
    path.write_bytes(path.read_bytes()[:-cut])
    write(tmp_path / "r", 1, request(5, [1000]))
    file = read_trace(str(tmp_path / "r"))
    assert file.cut_off_files == 1
    assert 98 <= len(file.trace) <= 101
    done = succeed("replay", str(tmp_path / "r"))
    assert "1 file ends too early; all whole lines are replayed" in done.stderr
    assert replay_json(tmp_path, str(tmp_path / "r"))["trace"]["cut_off_files"] == 1


def test_a_file_without_a_whole_header_is_cut_off_too(tmp_path: Path) -> None:
    path = write(tmp_path / "r", 0, *TURNS)
    (tmp_path / "r" / "requests-0-8-0000.jsonl.gz").write_bytes(path.read_bytes()[:12])
    (tmp_path / "r" / "requests-0-9-0000.jsonl.gz").write_bytes(b"")
    file = read_trace(str(tmp_path / "r"))
    assert (len(file.trace), file.cut_off_files) == (2, 2)
    assert file.warnings[-1] == "2 files end too early; all whole lines are replayed"


def test_a_plain_last_line_may_be_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "r", 0, *TURNS)
    path.write_bytes(gzip.decompress(path.read_bytes())[:-4])
    file = read_trace(str(tmp_path / "r"))
    assert (len(file.trace), file.cut_off_files, file.bad_lines) == (1, 1, 0)


def test_damage_inside_a_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "r", 0, *TURNS)
    path.write_bytes(path.read_bytes() + b"\xff" * 50)
    with pytest.raises(TraceFileError, match="the gzip stream is damaged"):
        read_trace(str(tmp_path / "r"))


def test_a_damaged_line_is_named_or_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "r", 0, TURNS[0], {"input_length": 5}, TURNS[1])
    with pytest.raises(TraceFileError, match=rf"{path}, line 3: field 'hash_ids' is missing"):
        read_trace(str(tmp_path / "r"))
    file = read_trace(str(tmp_path / "r"), skip_bad=True)
    assert (len(file.trace), file.bad_lines) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"kvoxide_recording": 3},
            "the recording has format 3; this kvoxide reads formats 1 and 2",
        ),
        ({"tokens_per_id": 0}, "header field 'tokens_per_id' is 0"),
        ({"tokens_per_id": "16"}, "header field 'tokens_per_id' is '16'"),
        ({"recording": None}, "header field 'recording' is None"),
        ({"rank": "0"}, "header field 'rank' is '0'"),
        ({"started": -1}, "header field 'started' is -1"),
        ({"started": True}, "header field 'started' is True"),
        (
            {"tokens_per_id": 32, "recording": "b"},
            "an id means 32 tokens, but in requests-0-7-0000.jsonl.gz it means 16",
        ),
    ],
)
def test_headers_that_cannot_be_are_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    write(tmp_path / "r", 0, *TURNS)
    path = write(tmp_path / "r", 1, *TURNS, **changes)
    with pytest.raises(TraceFileError) as refused:
        read_trace(str(tmp_path / "r"))
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_blocks": 0},
        {"max_running_requests": None},
        {"tensor_parallel": 0},
        {"cache_dtype": 8},
        {"given_block_size": "16"},
        {"max_model_len": 1.5},
        {"policy": 0},
        {"policy": "lru"},
        {"groups": [{"kind": "odd", "block_size": 16, "cached": True}]},
        {"groups": [{"kind": "full_attention", "block_size": 0, "cached": True}]},
        {"groups": 5},
        {"groups": [[]]},
    ],
)
def test_a_deployment_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    write(tmp_path / "r", 0, *TURNS, **changes)
    (name,) = changes
    with pytest.raises(TraceFileError, match=f"header field '{name}' is"):
        read_deployment(str(tmp_path / "r"))
    assert len(read_trace(str(tmp_path / "r")).trace) == 2


def test_groups_that_are_not_known_have_to_be_given(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS, groups=None)
    refused = kvoxide("replay", str(tmp_path / "r"))
    assert refused.exit_code == 2
    assert "the recording does not contain the KV cache groups; give --groups" in refused.stderr
    succeed("replay", str(tmp_path / "r"), "--preset", "llama")


def test_other_traces_among_the_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS)
    other = tmp_path / "r" / "requests-other.jsonl"
    other.write_text('{"prompt_token_ids": [1], "output_length": 1}\n')
    with pytest.raises(TraceFileError, match="the first line is not the header of a recording"):
        read_trace(str(tmp_path / "r"))
    assert len(read_trace(str(other)).trace) == 1


def test_tokens_per_id_can_only_be_repeated(tmp_path: Path) -> None:
    write(tmp_path / "r", 0, *TURNS)
    assert len(read_trace(str(tmp_path / "r"), tokens_per_id=16).trace) == 2
    with pytest.raises(TraceFileError, match="16 tokens, but --tokens-per-id is 32"):
        read_trace(str(tmp_path / "r"), tokens_per_id=32)


def test_recorded_steps_are_read_below_their_header(tmp_path: Path) -> None:
    step = {"duration": 0.02, "prefill_tokens": 5, "context_tokens": 6, "running": 7}
    lines = b"".join(json.dumps(r).encode() + b"\n" for r in ({**HEADER, "kind": "steps"}, step))
    path = tmp_path / "steps-0-7-0000.jsonl.gz"
    path.write_bytes(gzip.compress(lines) + gzip.compress(lines)[:-9])
    assert read_steps(tmp_path).tolist() == [[0.02, 5, 6, 7]] * 2


def test_qwen_bailians_lines_need_no_option(tmp_path: Path) -> None:
    """Ids of 16 tokens, times in seconds, and turns that belong together."""
    line = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.5, "type": "text", "turn": 1}
    ids = {"input_length": 30, "output_length": 5, "hash_ids": [4, 5]}
    longer = {"input_length": 40, "output_length": 5, "hash_ids": [4, 9, 6]}
    second = {**line, "chat_id": 2, "parent_chat_id": 1, "timestamp": 63.5, "turn": 2, **longer}
    path = tmp_path / "qwen.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in ({**line, **ids}, second)))
    assert read_trace(str(path)).trace.tokens_per_id == 16
    out = str(tmp_path / "lines")
    options = ["--arrivals", "trace", "--instances", "3", "--router", "session"]
    replay_json(tmp_path, str(path), *options, "--per-request", out)
    first, other = [json.loads(each) for each in (tmp_path / "lines").open()][:2]
    assert (first["arrival"], other["arrival"], other["hit_tokens"]) == (0.0, 2.0, 16)
    assert first["instance"] == other["instance"]
    with pytest.raises(TraceError, match="one for each 16"):
        read_trace(str(path)).trace.push_line(json.dumps({**line, **ids, "hash_ids": [1]}).encode())
