"""``kvoxide replay``: what it prints and writes, and hits that can be counted by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testing.traces import (
    kvoxide,
    line,
    mooncake_line,
    prompt,
    replay_json,
    succeed,
    write_trace,
)


@pytest.fixture
def twice(tmp_path: Path) -> str:
    """One prompt of 1000 tokens, asked twice."""
    return write_trace(tmp_path / "twice.jsonl", line(prompt(0)), line(prompt(0)))


def by_policy(record: dict[str, Any]) -> dict[tuple[str, int | None], dict[str, Any]]:
    return {(result["policy"], result["blocks"]): result for result in record["results"]}


@pytest.mark.parametrize("groups", ["full:16", "mla:16", "full:16,swa:16:64", "swa:16:64"])
def test_a_repeated_prompt_hits_all_full_blocks_before_its_last_token(
    tmp_path: Path, twice: str, groups: str
) -> None:
    record = replay_json(tmp_path, twice, "--groups", groups, "--concurrency", "1")
    for result in record["results"]:
        assert result["hit_tokens"] == 999 // 16 * 16
        assert result["hit_share"] == 992 / 2000
        assert (result["requests"], result["prompt_tokens"]) == (2, 2000)
        assert result["generated_tokens"] == 2
    pool, unlimited = record["results"]
    assert (pool["evictions"], pool["preemptions"]) == (0, 0)
    assert (unlimited["evictions"], unlimited["preemptions"]) == (None, None)


@pytest.mark.parametrize(("block_size", "hit"), [(16, 512), (32, 512), (128, 512), (1024, 0)])
def test_mooncake_prefixes_are_right_for_every_block_size(
    tmp_path: Path, block_size: int, hit: int
) -> None:
    trace = write_trace(
        tmp_path / "t", mooncake_line([3, 4, 5], 1500), mooncake_line([3, 6, 7], 1500)
    )
    record = replay_json(tmp_path, trace, "--groups", f"full:{block_size}", "--concurrency", "1")
    assert [result["hit_tokens"] for result in record["results"]] == [hit, hit]


@pytest.mark.parametrize("policy", ["fifo", "uncached-first"])
def test_a_small_pool_forgets_tails_first(tmp_path: Path, policy: str) -> None:
    # 65 usable blocks. Each prompt takes 63 and caches 62; the second one takes 60 of the
    # first one's cached blocks from the tail, so 2 are left to hit. The third takes 60 again.
    trace = write_trace(tmp_path / "t", *(line(prompt(number)) for number in (0, 1, 0)))
    record = replay_json(
        tmp_path, trace, "--blocks", "66", "--concurrency", "1", "--policy", policy
    )
    result = by_policy(record)[policy, 66]
    assert (result["hit_tokens"], result["evictions"]) == (32, 120)
    assert (result["peak_used_blocks"], result["peak_used_share"]) == (63, 63 / 65)
    assert by_policy(record)["unlimited", None]["hit_tokens"] == 992


def test_a_request_that_can_never_fit_is_rejected(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", line(prompt(0)), line(prompt(1, 100)))
    lines = tmp_path / "lines.jsonl"
    result = succeed("replay", trace, "--blocks", "32", "--per-request", lines)
    assert "rejected" in result.output
    assert "Compare only lines with the same rejections" in result.output
    hits = {(r["policy"], r["index"]): r["hit_tokens"] for r in map(json.loads, lines.open())}
    assert hits == {
        ("vllm", 0): None,
        ("vllm", 1): 0,
        ("unlimited", 0): 0,
        ("unlimited", 1): 0,
    }


def test_the_table_has_a_line_per_policy_and_the_unlimited_one(twice: str) -> None:
    output = succeed("replay", twice, "--policy", "fifo", "--policy", "pin=4").output
    first_words = [row.split()[0] for row in output.splitlines() if row.strip()]
    assert [word for word in first_words if word in {"fifo", "pin=4", "unlimited"}] == [
        "fifo",
        "pin=4",
        "unlimited",
    ]
    assert "…" not in output
    assert "rejected" not in output


def test_several_pool_sizes_are_compared(tmp_path: Path, twice: str) -> None:
    sizes = ("--blocks", "400,66,200")
    output = succeed("replay", twice, *sizes, "--policy", "fifo", "--policy", "pin").output
    assert "Hit share over pool size in blocks" in output
    record = replay_json(tmp_path, twice, *sizes, "--policy", "fifo", "--policy", "pin")
    assert list(by_policy(record)) == [
        *(("fifo", size) for size in (66, 200, 400)),
        *(("pin", size) for size in (66, 200, 400)),
        ("unlimited", None),
    ]


def test_the_json_file_holds_everything(tmp_path: Path, twice: str) -> None:
    record = replay_json(tmp_path, twice, "--preset", "gpt-oss", "--requests", "2")
    assert list(record) == [
        "kvoxide",
        "settings",
        "trace",
        "timing",
        "missing_runs",
        "timeline_columns",
        "retention_columns",
        "results",
    ]
    assert record["settings"] == {
        "groups": "full:16,swa:16:128",
        "kv_cache_groups": [
            {
                "kind": "full_attention",
                "block_size": 16,
                "sliding_window": None,
                "attention_chunk_size": None,
                "rswa_window": None,
            },
            {
                "kind": "sliding_window",
                "block_size": 16,
                "sliding_window": 128,
                "attention_chunk_size": None,
                "rswa_window": None,
            },
        ],
        "hit_tokens": 16,
        "blocks": [50000],
        "policies": ["vllm"],
        "left_out": [],
        "concurrency": 256,
        "max_batched_tokens": 8192,
        "bound": False,
        "model": None,
        "serving": None,
        "prefix_caching": True,
        "follows_schedule": False,
    }
    assert record["trace"] == {
        "name": twice,
        "format": "mooncake",
        "notes": [],
        "requests": 2,
        "prompt_tokens": 2000,
        "output_tokens": 2,
        "tokens_per_id": 512,
        "requests_limit": 2,
        "skip_bad": False,
        "bad_lines": 0,
        "first_bad_line": None,
        "cut_off_files": 0,
        "returned_answers": None,
    }
    pool, unlimited = record["results"]
    assert list(pool) == list(unlimited)
    assert list(pool["schedule_seconds"]) == ["p50", "p99", "max"]
    assert len(pool["timeline"][0]) == len(record["timeline_columns"])
    assert len(pool["retention"][0]) == len(record["retention_columns"])
    assert unlimited["timeline"] is unlimited["retention"] is None


def test_bad_lines_are_counted_in_the_json_file(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", b"bad\n", line(prompt(0)), b"bad\n")
    record = replay_json(tmp_path, trace, "--skip-bad")
    assert record["trace"]["bad_lines"] == 2
    assert "bad lines: 2" in succeed("replay", trace, "--skip-bad").stderr


def test_a_damaged_line_stops_the_replay(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.jsonl", line(prompt(0)), b'{"prompt_token_ids": [1]}\n')
    result = kvoxide("replay", trace)
    assert result.exit_code == 1
    assert f"Error: {trace}, line 2: field 'output_length' " in result.stderr


def test_per_request_lines(tmp_path: Path, twice: str) -> None:
    path = tmp_path / "lines.jsonl"
    succeed("replay", twice, "--blocks", "100,200", "--concurrency", "1", "--per-request", path)
    records = [json.loads(text) for text in path.open()]
    assert [(r["policy"], r["blocks"], r["index"], r["hit_tokens"]) for r in records] == [
        ("vllm", 100, 0, 0),
        ("vllm", 100, 1, 992),
        ("vllm", 200, 0, 0),
        ("vllm", 200, 1, 992),
        ("unlimited", None, 0, 0),
        ("unlimited", None, 1, 992),
    ]
    assert records[0] == {
        "policy": "vllm",
        "blocks": 100,
        "index": 0,
        "prompt_tokens": 1000,
        "output_tokens": 1,
        "hit_tokens": 0,
        "preemptions": 0,
        "evicted_full_tokens": 0,
        "evicted_tail_tokens": 0,
        "never_cached_tokens": 0,
        "first_time_tokens": 1000,
    }


def test_standard_input_and_the_limit(tmp_path: Path) -> None:
    data = line(prompt(0)) + line(prompt(1)) + b"bad\n"
    path = tmp_path / "r.json"
    succeed("replay", "-", "--requests", "2", "--json", path, standard_input=data)
    assert json.loads(path.read_bytes())["trace"]["name"] == "standard input"


def test_quiet_prints_nothing(tmp_path: Path, twice: str) -> None:
    path = tmp_path / "r.json"
    assert succeed("replay", twice, "--quiet", "--json", path).output == ""
    assert path.exists()


@pytest.mark.parametrize("option", ["--json", "--per-request", "--plot"])
def test_an_unwritable_file_is_found_out_before_the_trace_is_read(
    tmp_path: Path, option: str
) -> None:
    result = kvoxide("replay", "no such trace", option, tmp_path / "missing" / "file.png")
    assert result.exit_code == 2
    assert option in result.stderr
    assert "cannot write" in result.stderr


def test_a_result_file_must_not_be_the_trace(twice: str) -> None:
    result = kvoxide("replay", twice, "--json", twice)
    assert result.exit_code == 1
    assert "or is the trace" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--groups", "full:16", "--preset", "llama"], "cannot be used together"),
        (["--groups", "full:16,hisparse:16"], "unknown group kind 'hisparse'"),
        (["--preset", "qwen"], "'qwen'"),
        (["--policy", "lru"], "cannot read 'lru'"),
        (["--policy", "pin", "--policy", "pin"], "given twice"),
        (["--blocks", "many"], "'many'"),
        (["--blocks", "100,1"], "1 blocks are not possible; a pool has 2 to"),
        (["--blocks", "99999999999999999999"], "a pool has 2 to 2,147,483,647 blocks"),
        (["--concurrency", "0"], "--concurrency"),
        (["--max-batched-tokens", "0"], "--max-batched-tokens"),
        (["--requests", "0"], "--requests"),
        (["--plot", "plot.jpeg"], "must end in"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], said: str) -> None:
    result = kvoxide("replay", "no such trace", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--preset", "llama", "--policy", "interval=8192"],
        ["--preset", "gemma-3", "--policy", "interval=8191"],
    ],
)
def test_what_does_not_go_together_is_found_out_before_the_trace_is_read(
    arguments: list[str],
) -> None:
    result = kvoxide("replay", "no such trace", *arguments)
    assert result.exit_code == 1
    assert f"policy {arguments[-1]!r}: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("preset", "unfit", "fitting", "reason"),
    [
        ("qwen3-next", "interval=auto", "interval=544", "retention_interval is 32768"),
        ("llama", "interval=8192", "pin", "no KV cache group has a sliding window"),
    ],
)
def test_a_policy_that_does_not_fit_the_groups_is_left_out_by_name(
    tmp_path: Path, preset: str, unfit: str, fitting: str, reason: str
) -> None:
    path = tmp_path / "replay.json"
    policies = ("--policy", unfit, "--policy", "fifo", "--policy", fitting)
    arguments = ("--preset", preset, "--blocks", "3000", *policies, "--json", str(path))
    result = kvoxide("replay", "sample", *arguments)
    assert result.exit_code == 0, result.stderr
    assert f"policy {unfit!r}: " in result.stderr
    assert reason in result.stderr
    assert "left out" in result.stderr
    record = json.loads(path.read_text())
    assert record["settings"]["policies"] == ["fifo", fitting]
    assert [unfit in why for why in record["settings"]["left_out"]] == [True]
    assert [run["policy"] for run in record["results"]] == ["fifo", fitting, "unlimited"]


def test_the_sample_is_the_default_and_tells_policies_apart(tmp_path: Path) -> None:
    policies = ("--policy", "fifo", "--policy", "pin")
    record = replay_json(tmp_path, "--preset", "gemma-3", "--blocks", "200000", *policies)
    assert (record["trace"]["name"], record["trace"]["requests"]) == ("sample", 600)
    hits = [result["hit_tokens"] for result in record["results"]]
    assert len(set(hits)) == 3
    assert max(hits) == hits[-1]


def test_adaptive_retention_hits_at_least_what_the_default_does(tmp_path: Path) -> None:
    policies = ("--policy", "uncached-first", "--policy", "adaptive")
    record = replay_json(tmp_path, "--preset", "gemma-3", "--blocks", "100000", *policies)
    hits = {result["policy"]: result["hit_tokens"] for result in record["results"]}
    assert hits["uncached-first"] < hits["adaptive"] <= hits["unlimited"]


def test_version() -> None:
    assert kvoxide("--version").output.startswith("kvoxide, version ")
