"""Recordings with the server's steps, resets and requests that skip the cache."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from kvoxide.lab.replay.input import read_deployment, read_trace
from kvoxide.lab.replay.input.trace_file import TraceFileError

from tests.testing.traces import kvoxide, replay_json, succeed
from tests.testing.vllm_releases import NEWEST

RULES: dict[str, Any] = {
    "max_model_len": 800,
    "scheduler_block_size": 16,
    "hash_block_size": 16,
    "max_in_flight_tokens": 64,
    "use_eagle": False,
    "drops_flagged_groups": False,
    "dcp_world_size": 1,
    "num_hash_lookahead_tokens": 0,
    "shared_prefix_checkpoint": False,
    "recaches_known_tail": False,
    "num_prefill_lookahead": 0,
    "watermark": 0.0,
    "keep_tail_below_boundary": True,
    "num_blocks": 60,
    "prefix_replay_tokens": 0,
    "num_spec_tokens": 0,
    "is_async": False,
    "num_lookahead_tokens": 0,
    "reserves_full_input": True,
}
HEADER: dict[str, Any] = {
    "kvoxide_recording": 2,
    "recording": "a",
    "kind": "requests",
    "part": 0,
    "rank": 0,
    "started": 1000.0,
    "tokens_per_id": 16,
    "vllm": NEWEST,
    "num_blocks": 60,
    "max_running_requests": 3,
    "max_batched_tokens": 64,
    "groups": [{"kind": "full_attention", "block_size": 16, "cached": True}],
    "rules": RULES,
    "policy": "uncached-first",
}
END = {"end": "closed"}


def preempted(request: int, num_tokens: int) -> dict[str, int]:
    return {"preempted": request, "tokens": num_tokens, "computed": num_tokens}


def write(folder: Path, *lines: dict[str, Any], part: int = 0, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    rank = changes.get("rank", 0)
    path = folder / f"requests-{rank}-7-{part:04}.jsonl.gz"
    header = {**HEADER, "part": part, **changes}
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (header, *lines))
    path.write_bytes(gzip.compress(text))
    return path


def request(number: int, timestamp: float, **more: Any) -> dict[str, Any]:
    """A prompt of 40 tokens, whose first two blocks are shared, and two generated tokens."""
    return {
        "request": number,
        "timestamp": timestamp,
        "input_length": 40,
        "output_length": 2,
        "hash_ids": [0, 1, 10 + number],
        "output_hash_ids": [],
        "status": "length_capped",
        **more,
    }


def steps(number: int, hit: int) -> dict[str, Any]:
    return {"schedule": [[[number, 40 - hit, hit]], 1]}


def hits(tmp_path: Path, *options: str) -> int:
    record = replay_json(tmp_path, str(tmp_path / "r"), "--quiet", *options)
    return int(record["results"][0]["hit_tokens"])


PLAIN = (steps(0, 0), request(0, 1.0), steps(1, 32), request(1, 5.0), END)
RESET = (
    steps(0, 0),
    request(0, 1.0),
    {"reset": "idle", "timestamp": 3.0},
    steps(1, 0),
    request(1, 5.0),
    END,
)
SKIP = (steps(0, 0), request(0, 1.0), steps(1, 0), request(1, 5.0, skips_cache=True), END)


@pytest.mark.parametrize("options", [(), ("--arrivals", "trace"), ("--arrivals", "full")])
@pytest.mark.parametrize(("lines", "expected"), [(PLAIN, 32), (RESET, 0), (SKIP, 0)])
def test_resets_and_skips_are_played(
    tmp_path: Path, lines: tuple[dict[str, Any], ...], expected: int, options: tuple[str, ...]
) -> None:
    write(tmp_path / "r", *lines)
    assert hits(tmp_path, *options) == expected


def test_a_reset_preempts_what_runs_where_it_did(tmp_path: Path) -> None:
    """Both requests run when the cache is emptied, and compute all of their tokens again."""
    lines = (
        {"schedule": [[[0, 40, 0]], [[1, 8, 32]], preempted(1, 40), preempted(0, 40)]},
        {"reset": "preempting", "timestamp": 3.0},
        {"schedule": [[[0, 41, 0], [1, 8, 32]], 2]},
        request(0, 1.0),
        request(1, 1.5),
        steps(2, 32),
        request(2, 4.0),
        END,
    )
    write(tmp_path / "r", *lines)
    record = replay_json(tmp_path, str(tmp_path / "r"), "--quiet")
    result = record["results"][0]
    assert record["settings"]["follows_schedule"]
    assert (result["hit_tokens"], result["preemptions"]) == (64, 2)


def test_the_steps_are_those_of_the_server(tmp_path: Path) -> None:
    """The second request came while the first ran, and is admitted when that has ended."""
    lines = (
        {"schedule": [[[0, 40, 0]], 1]},
        request(0, 1.0),
        {"schedule": [[[1, 8, 32]], 1]},
        request(1, 1.0),
        END,
    )
    write(tmp_path / "r", *lines, max_running_requests=2)
    assert hits(tmp_path) == 32
    done = succeed("replay", tmp_path / "r")
    assert "in the steps of the recorded server" in done.stdout
    record = replay_json(tmp_path, str(tmp_path / "r"), "--quiet", "--concurrency", "3")
    assert not record["settings"]["follows_schedule"], "another scheduler is modelled"


@pytest.mark.parametrize("blocks", ["4", "9", "60", "500"])
def test_other_pools_follow_the_same_steps(tmp_path: Path, blocks: str) -> None:
    """Five requests run at once; a small pool lets them wait, and serves all of them."""
    admitted = [[number, 40, 0] for number in range(5)]
    lines = (
        {"schedule": [admitted[:1], [[0, 1], *admitted[1:2]], admitted[2:3], 6]},
        *(request(number, 1.0 + number, output_length=8) for number in range(5)),
        {"schedule": [[[number, 8, 32] for number in range(5, 8)], 1]},
        *(request(number, 9.0 + number) for number in range(5, 8)),
        END,
    )
    write(tmp_path / "r", *lines, max_running_requests=8)
    record = replay_json(tmp_path, str(tmp_path / "r"), "--quiet", "--blocks", blocks)
    result = record["results"][0]
    assert record["settings"]["follows_schedule"]
    assert (result["requests"], result["rejected_requests"]) == (8, 0)
    assert result["hit_tokens"] >= 64


def test_ranks_reset_their_own_caches(tmp_path: Path) -> None:
    write(tmp_path / "r", *RESET)
    write(tmp_path / "r", *PLAIN, rank=1, recording="b", started=1000.01)
    record = replay_json(tmp_path, str(tmp_path / "r"), "--quiet")
    instances = record["results"][0]["serving"]["instances"]
    assert [instance["hit_tokens"] for instance in instances] == [0, 32]
    timed = replay_json(tmp_path, str(tmp_path / "r"), "--quiet", "--arrivals", "trace")
    instances = timed["results"][0]["serving"]["instances"]
    assert [instance["hit_tokens"] for instance in instances] == [0, 32]
    prefix = ("--arrivals", "trace", "--router", "prefix", "--instances", "3")
    other = replay_json(tmp_path, str(tmp_path / "r"), "--quiet", *prefix)
    assert other["results"][0]["hit_tokens"] <= 64


def test_a_server_that_starts_again_has_an_empty_cache(tmp_path: Path) -> None:
    write(tmp_path / "r", *PLAIN)
    second = tmp_path / "r" / "requests-0-8-0000.jsonl.gz"
    write(tmp_path / "s", *PLAIN, recording="b", started=1001.0).rename(second)
    assert hits(tmp_path) == 64
    assert hits(tmp_path, "--arrivals", "full") == 64


def test_servers_that_ran_at_once_are_played_at_their_times(tmp_path: Path) -> None:
    write(tmp_path / "r", *PLAIN)
    second = tmp_path / "r" / "requests-0-8-0000.jsonl.gz"
    write(tmp_path / "s", *PLAIN, recording="b", started=1000.002).rename(second)
    done = succeed("replay", tmp_path / "r")
    assert "no steps of a single server to follow" in done.stderr


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ({"end": "closed"}, None),
        ({"end": "idle"}, None),
        ({"end": "failed", "reason": "No space left"}, "recording failed on the server: No space"),
        (None, "the server was killed, the disk was full, or it is still recording"),
    ],
)
def test_a_recording_without_its_end_says_so(
    tmp_path: Path, last: dict[str, Any] | None, says: str | None
) -> None:
    write(tmp_path / "r", *PLAIN[:-1], *([last] if last else []))
    done = succeed("replay", tmp_path / "r")
    if says is None:
        assert "has no end" not in done.stderr
    else:
        assert says in done.stderr
        record = replay_json(tmp_path, str(tmp_path / "r"))
        assert any(says in note for note in record["trace"]["notes"])


def test_a_recording_without_its_beginning_says_so(tmp_path: Path) -> None:
    """The first file that is left names what runs where it begins."""
    later = ({"running": [[7, 40]]}, {"schedule": [1]}, request(7, 1.0), *PLAIN[2:])
    write(tmp_path / "r", *later, part=1)
    done = succeed("replay", tmp_path / "r")
    assert "the beginning of the recording is missing" in done.stderr
    assert hits(tmp_path) == 32
    write(tmp_path / "r", *PLAIN[2:], part=3)
    assert (
        "files in the middle of the recording are missing"
        in succeed("replay", tmp_path / "r").stderr
    )


def test_older_recordings_say_what_they_lack(tmp_path: Path) -> None:
    line = {k: v for k, v in request(0, 1.0).items() if k != "request"}
    write(tmp_path / "r", line, kvoxide_recording=1)
    done = succeed("replay", tmp_path / "r")
    assert "has format 1, without steps" in done.stderr
    assert not replay_json(tmp_path, str(tmp_path / "r"))["settings"]["follows_schedule"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"schedule": [[[0]]]}, "field 'schedule' has a request with 1 numbers; expected 2 or 3"),
        ({"schedule": "x"}, "field 'schedule' is not part of a schedule"),
        ({"schedule": [2**40]}, "field 'schedule' has the number 1099511627776"),
        ({"reset": "soon", "timestamp": 1.0}, 'field \'reset\' is "soon"; it can be "idle"'),
        ({"reset": "idle", "timestamp": -1.0}, "field 'timestamp' is -1; expected milliseconds"),
        ({"end": "maybe"}, "field 'end' is 'maybe'; it can be idle, closed, failed"),
        (request(0, 1.0, request=-1), "field 'request' is -1; expected the number of a request"),
        (request(0, 1.0, skips_cache=1), "field 'skips_cache' is 1; expected true or false"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: dict[str, Any], says: str) -> None:
    path = write(tmp_path / "r", *PLAIN, line)
    with pytest.raises(TraceFileError) as refused:
        read_trace(str(tmp_path / "r"))
    assert str(refused.value).startswith(f"{path}, line 7: {says}")
    file = read_trace(str(tmp_path / "r"), skip_bad=True)
    assert (len(file.trace), file.bad_lines) == (2, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("watermark", "0"),
        ("use_eagle", 1),
        ("num_blocks", None),
        ("max_model_len", -1),
        ("frees_late", 1),
        ("older_rules", "caches_unreachable_ends"),
        ("older_rules", ["no_such_rule"]),
        ("older_rules", [{}]),
    ],
)
def test_damaged_rules_are_named(tmp_path: Path, name: str, value: object) -> None:
    write(tmp_path / "r", *PLAIN, rules={**RULES, name: value})
    with pytest.raises(TraceFileError, match=f"header field 'rules.{name}' is"):
        read_deployment(str(tmp_path / "r"))


def test_rules_of_older_releases_are_read(tmp_path: Path) -> None:
    for given, read in (({}, []), ({"older_rules": ["bounds_proofs_by_hit"]}, None)):
        folder = tmp_path / str(len(given))
        write(folder, *PLAIN, rules={**RULES, **given})
        deployment = read_deployment(str(folder))
        assert deployment is not None
        rules = deployment.rules
        assert rules is not None
        assert rules["older_rules"] == (given["older_rules"] if read is None else read)
        succeed("replay", folder, "--quiet")


def test_a_part_of_the_requests_is_modelled(tmp_path: Path) -> None:
    write(tmp_path / "r", *RESET)
    record = replay_json(tmp_path, str(tmp_path / "r"), "--quiet", "--requests", "1")
    assert not record["settings"]["follows_schedule"]
    assert record["trace"]["requests"] == 1


def test_steps_of_a_server_need_its_recording() -> None:
    refused = kvoxide("replay", "sample", "--arrivals", "recorded")
    assert refused.exit_code == 2
    assert "--arrivals recorded needs the recording of a server" in refused.output


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (
            {"connector": "LMCacheConnector"},
            "the connector LMCacheConnector. Tokens that it loaded",
        ),
        ({"policy": "adaptive"}, "adaptive retention, which samples blocks by their hashes"),
    ],
)
def test_what_a_recording_cannot_tell_is_said(
    tmp_path: Path, header: dict[str, Any], says: str
) -> None:
    write(tmp_path / "r", *PLAIN, **header)
    assert says in succeed("replay", tmp_path / "r").stderr
    write(tmp_path / "plain", *PLAIN, samples=True, policy="adaptive")
    assert says not in succeed("replay", tmp_path / "plain").stderr


NUM_PAIRS = 15


@pytest.fixture
def timed(tmp_path: Path) -> list[float]:
    """Record pairs of requests, one pair after the other, whose steps take times that have nothing
    to do with their work; return how long the first token of each pair took."""
    generator = random.Random(7)
    lines: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    waits = []
    for pair in range(NUM_PAIRS):
        first, second, hit = 2 * pair, 2 * pair + 1, 32 if pair else 0
        both = [[first, 40 - hit, hit], [second, 8, 32]]
        lines += [{"schedule": [both, 1]}, request(first, 1e4 * pair), request(second, 1e4 * pair)]
        alone = 100 + pair
        lines += [steps(alone, 32), request(alone, 1e4 * pair + 5e3)]
        prefills = [48 - hit, 0, 8, 0]
        for prefill, running in zip(prefills, (2, 2, 1, 1), strict=True):
            seconds = generator.uniform(0.001, 1.0)
            rows.append(
                {
                    "duration": seconds,
                    "prefill_tokens": prefill,
                    "context_tokens": running * hit + pair,
                    "running": running,
                }
            )
        waits += [rows[-4]["duration"], rows[-4]["duration"], rows[-2]["duration"]]
    write(tmp_path / "r", *lines, END, num_blocks=600, max_batched_tokens=128)
    write_steps(tmp_path, rows)
    return waits


def write_steps(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    lines = ({**HEADER, "kind": "steps"}, *rows)
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (tmp_path / "r" / "steps-0-7-0000.jsonl.gz").write_bytes(gzip.compress(text))


def recorded_steps(tmp_path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress((tmp_path / "r" / "steps-0-7-0000.jsonl.gz").read_bytes())
    return [json.loads(line) for line in text.splitlines()[1:]]


def waits_of(tmp_path: Path, *options: str) -> list[float | None]:
    path = tmp_path / "lines"
    succeed("replay", tmp_path / "r", "--quiet", "--per-request", path, *options)
    lines = [json.loads(line) for line in path.open()][: 3 * NUM_PAIRS]
    return [line["first_token"] and line["first_token"] - line["arrival"] for line in lines]


def test_followed_steps_take_the_time_that_they_took(tmp_path: Path, timed: list[float]) -> None:
    assert waits_of(tmp_path) == pytest.approx(timed, abs=1e-6)
    record = replay_json(tmp_path, str(tmp_path / "r"), "--quiet")
    assert record["settings"]["follows_schedule"]
    assert record["settings"]["serving"]["as_recorded"]
    assert "steps take as long as on the server" in succeed("replay", tmp_path / "r").stdout
    given = waits_of(
        tmp_path, "--arrivals", "recorded", "--step-time", "base=1s,prefill=0s,running=0s"
    )
    assert given == pytest.approx([1.0] * len(timed), abs=1e-3)


def test_other_work_takes_more_or_less_time(tmp_path: Path, timed: list[float]) -> None:
    """Nothing is hit, so that each prompt after the first pair takes the time of 32 more tokens."""
    fitted = replay_json(tmp_path, str(tmp_path / "r"), "--quiet")
    step_time = fitted["settings"]["serving"]["step_time"]
    per_token = step_time["prefill"] - step_time["context"]
    longer = [0.0] * 3 + [64 * per_token, 64 * per_token, 32 * per_token] * (NUM_PAIRS - 1)
    expected = [max(0.0, wait + more) for wait, more in zip(timed, longer, strict=True)]
    found = waits_of(tmp_path, "--no-enable-prefix-caching")
    assert found[3:] == pytest.approx(expected[3:], abs=1e-6)


@pytest.mark.parametrize("spoil", [lambda rows: rows[:-20], lambda rows: rows[1:] + rows[:1]])
def test_durations_of_other_steps_show_no_times(
    tmp_path: Path, timed: list[float], spoil: Any
) -> None:
    rows = recorded_steps(tmp_path)
    write_steps(tmp_path, spoil(rows))
    assert waits_of(tmp_path) == [None] * len(timed)
    printed = succeed("replay", tmp_path / "r").stdout
    assert "no times are shown: the recorded durations do not match the recorded steps" in printed
    write_steps(tmp_path, rows[:-3])
    assert None not in waits_of(tmp_path), "steps that were in flight when the server was killed"


def test_a_recording_says_whether_its_server_cached_prefixes(tmp_path: Path) -> None:
    """A server with a connector and without prefix caching is recorded too."""
    write(tmp_path / "r", *PLAIN, prefix_caching=False)
    assert hits(tmp_path) == 0
    assert hits(tmp_path, "--arrivals", "trace") == 0
    assert hits(tmp_path, "--enable-prefix-caching") == 32
    write(tmp_path / "r", *PLAIN, prefix_caching=True)
    assert hits(tmp_path) == 32
    assert hits(tmp_path, "--no-enable-prefix-caching") == 0
    write(tmp_path / "r", *PLAIN, prefix_caching="yes")
    done = kvoxide("replay", tmp_path / "r")
    assert done.exit_code == 1
    assert "header field 'prefix_caching' is 'yes'" in done.output


def test_the_server_decides_where_the_class_has_no_prefix_caching(tmp_path: Path) -> None:
    llama = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 1,
        "max_position_embeddings": 64,
        "is_encoder_decoder": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(llama))
    write(tmp_path / "r", *PLAIN, max_model_len=64)
    options = ("--model", str(tmp_path), "--blocks", "60", "--arrivals", "trace")
    assert hits(tmp_path, *options) == 32
    assert hits(tmp_path, *options, "--no-enable-prefix-caching") == 0
