"""The page of ``--html``: its figures equal the values of ``--json``, and its texts stay texts."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from kvoxide.lab.output import colours

from tests.testing.failing_cluster import MESSAGE, fail_after
from tests.testing.pages import PageText, replay_page, traces_of
from tests.testing.traces import kvoxide, line, prompt, succeed, write_trace

POLICIES = ("--policy", "fifo", "--policy", "adaptive")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    lines = [
        json.dumps(
            {**json.loads(line(prompt(0 if n % 2 else n % 10), 20)), "timestamp": 400 * n}
        ).encode()
        + b"\n"
        for n in range(40)
    ]
    return write_trace(tmp_path / "t.jsonl", *lines)


def by_policy(record: dict[str, Any], blocks: int) -> dict[str, dict[str, Any]]:
    """The results at one pool size, and the unlimited one."""
    return {r["policy"]: r for r in record["results"] if r["blocks"] in (blocks, None)}


def test_shares_are_those_of_the_json(tmp_path: Path, trace: str) -> None:
    page, record = replay_page(tmp_path, trace, "--blocks", "150", *POLICIES)
    plot = page.plots["Outcome of the prompt tokens, 150 blocks"]
    results = by_policy(record, 150)
    assert results["fifo"]["hit_tokens"] > 0
    drawn = {mark["name"]: mark for mark in plot["data"]}
    for fate, key in {
        "hit": "hit_share",
        "full evicted": "evicted_full_share",
        "tail evicted": "evicted_tail_share",
        "never cached": "never_cached_share",
        "first time": "first_time_share",
    }.items():
        assert drawn[fate]["y"] == ["fifo", "adaptive"]
        assert drawn[fate]["x"] == [results["fifo"][key], results["adaptive"][key]]
    assert drawn["unlimited"]["x"] == [results["unlimited"]["hit_share"]] * 2
    assert "never cached" not in traces_of(plot)


def test_both_memories_are_on_the_page(tmp_path: Path, trace: str) -> None:
    sizes = ("--blocks", "150", "--host-blocks", "0,100,600", "--arrivals", "trace")
    page, record = replay_page(tmp_path, trace, *sizes, "--host-link", "load=5GB/s")
    drawn = {
        mark["name"]: mark
        for mark in page.plots["Outcome of the prompt tokens, 150 blocks"]["data"]
    }
    results = [r for r in record["results"] if r["policy"] != "unlimited"]
    loaded = [r.get("host_memory", {}).get("loaded_share", 0.0) for r in results]
    assert max(loaded) > 0
    assert drawn["hit on CPU"]["x"] == loaded
    on_gpu = [r["hit_share"] - share for r, share in zip(results, loaded, strict=True)]
    assert drawn["hit on GPU"]["x"] == on_gpu
    assert page.table("stored\nGB")[1]["policy"] == "vllm + 600 blocks lru"
    texts = "\n".join(text for found in page.texts.values() for text in found)
    for text in (
        "100 blocks lru, 600 blocks lru",
        "a load takes 200 µs and its bytes at 5 GB/s",
        "a store takes 200 µs and its bytes at 25 GB/s",
        "vllm + 100 blocks lru: CPU memory has 100 blocks, fewer than the pool of 150",
    ):
        assert text in texts


def test_the_best_pool_is_one_that_a_server_can_have(tmp_path: Path, trace: str) -> None:
    sizes = ("--blocks", "150", "--host-blocks", "100,600", "--arrivals", "trace", "--bound")
    page, record = replay_page(tmp_path, trace, *sizes)
    best = max(r["hit_share"] for r in record["results"] if r.get("is_one_pool") is False)
    (bound,) = (
        r["hit_share"]
        for r in record["results"]
        if (r["policy"], r["blocks"]) == ("clairvoyant", 150 + 600)
    )
    tiles = dict(zip(page.texts["span"], page.texts["strong"], strict=True))
    assert tiles["Highest hit share"] == f"{best:.2%}"
    assert tiles["Clairvoyant"] == f"{bound:.2%}"
    notes = page.texts["small"]
    assert notes[0] == "vllm + 600 blocks lru, 150 blocks"
    assert "upper bound for a pool of 750 blocks" in notes
    assert not [note for note in notes if "one pool" in note]


def test_a_pool_that_rejects_most_requests_is_not_the_best(tmp_path: Path) -> None:
    short = [line(prompt(0, 64), 1)] * 10
    long = [line(prompt(number, 1000), 1) for number in range(1, 10)]
    trace = write_trace(tmp_path / "t.jsonl", *short, *long)
    page, record = replay_page(tmp_path, trace, "--blocks", "20,150")
    small, large = (result["hit_share"] for result in record["results"][:2])
    assert small > large > 0
    assert page.texts["strong"][0] == f"{large:.2%}"


def test_tables_are_those_of_the_terminal(tmp_path: Path, trace: str) -> None:
    page, record = replay_page(tmp_path, trace, "--blocks", "150", *POLICIES)
    rows = page.table("evictions")
    results = by_policy(record, 150)
    assert [row["policy"] for row in rows] == ["fifo", "adaptive", "unlimited"]
    for row in rows[:2]:
        result = results[row["policy"]]
        assert row["hit\ntokens"] == f"{result['hit_tokens']:,}"
        assert row["hit\nshare"] == f"{result['hit_share']:.2%}"
        assert row["evictions"] == f"{result['evictions']:,}"
    assert rows[2]["evictions"] == "-"


def test_the_pool_over_the_trace(tmp_path: Path, trace: str) -> None:
    page, record = replay_page(tmp_path, trace, "--blocks", "150", *POLICIES)
    columns = record["retention_columns"]
    for name in ("fifo", "adaptive"):
        points = by_policy(record, 150)[name]["retention"]
        drawn = {mark["name"]: mark for mark in page.plots[f"Blocks of the pool: {name}"]["data"]}
        for mark, column in {
            "in use": "in_use_share",
            "full waiting": "full_share",
            "evicted full": "evicted_full_blocks",
        }.items():
            assert drawn[mark]["x"] == [point[0] for point in points]
            assert drawn[mark]["y"] == [point[columns.index(column)] for point in points]
        evicted = traces_of(page.plots["Evictions so far"])[name]["y"][-1]
        assert evicted == points[-1][8] + points[-1][9]
        assert evicted > 0


def test_several_pool_sizes_with_their_bound(tmp_path: Path, trace: str) -> None:
    page, record = replay_page(tmp_path, trace, "--blocks", "150,300", "--bound", *POLICIES)
    curves = traces_of(page.plots["Hit share over the pool size"])
    for name in ("fifo", "adaptive", "clairvoyant"):
        assert curves[name]["x"] == [150, 300]
        assert curves[name]["y"] == [
            by_policy(record, blocks)[name]["hit_share"] for blocks in (150, 300)
        ]
    share = by_policy(record, 150)["unlimited"]["hit_share"]
    assert curves["unlimited"]["y"] == [share, share]
    assert [text.strip() for text in page.texts["summary"]] == ["150 blocks", "300 blocks"]
    tiles = dict(zip(page.texts["span"], page.texts["strong"], strict=True))
    best = max(r["hit_share"] for r in record["results"] if r["evictions"] is not None)
    assert tiles["Highest hit share"] == f"{best:.2%}"


def test_times_of_a_clock_and_instances(tmp_path: Path, trace: str) -> None:
    page, record = replay_page(
        tmp_path, trace, "--blocks", "150", "--arrivals", "trace", "--instances", "2", *POLICIES
    )
    for title, key in {
        "Time to the first token": "time_to_first_token",
        "Time between tokens": "time_between_tokens",
    }.items():
        drawn = {mark["name"]: mark["x"] for mark in page.plots[title]["data"]}
        for result in record["results"]:
            assert drawn[result["policy"]] == list(result["serving"][key].values())
    requests = traces_of(page.plots["Requests by instance"])
    for result in record["results"]:
        counts = [instance["requests"] for instance in result["serving"]["instances"]]
        assert requests[result["policy"]]["y"] == counts
        assert sum(counts) == 40
    assert len(page.table("instance")) == 6
    waits = page.plots["Time to the first token over the time of arrival"]["data"]
    assert len(waits) == 6
    assert max(waits[0]["x"]) < 400e-3 * 40


def test_times_over_pool_sizes(tmp_path: Path, trace: str) -> None:
    page, record = replay_page(
        tmp_path, trace, "--blocks", "150,300", "--arrivals", "trace", *POLICIES
    )
    drawn = traces_of(page.plots["Time between tokens, p90"])
    for name in ("fifo", "adaptive"):
        assert drawn[name]["y"] == [
            by_policy(record, blocks)[name]["serving"]["time_between_tokens"]["p90"]
            for blocks in (150, 300)
        ]


def test_runs_that_are_missing(tmp_path: Path, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_after(monkeypatch, lambda run: (run.policy.name, run.blocks) != ("adaptive", 150))
    page, record = partial_page(
        tmp_path, trace, "--blocks", "150,300", "--bound", "--arrivals", "trace", *POLICIES
    )
    assert record["missing_runs"] == 1
    assert page.texts["dd"][-2:] == ["1 run", MESSAGE]
    shares = traces_of(page.plots["Hit share over the pool size"])
    times = traces_of(page.plots["Time to the first token, p90"])
    result = by_policy(record, 300)["adaptive"]
    assert shares["adaptive"]["y"] == [None, result["hit_share"]]
    assert times["adaptive"]["y"] == [None, result["serving"]["time_to_first_token"]["p90"]]
    assert None not in shares["fifo"]["y"] + shares["unlimited"]["y"] + times["fifo"]["y"]
    (row,) = [row for row in page.table("150") if row["policy"] == "adaptive"]
    assert row == {"policy": "adaptive", "150": "-", "300": f"{result['hit_share']:.1%}"}
    drawn = [page.plots[f"Outcome of the prompt tokens, {n} blocks"] for n in (150, 300)]
    assert [plot["data"][0]["y"] for plot in drawn] == [["fifo"], ["fifo", "adaptive"]]


@pytest.mark.parametrize("blocks", ["150", "150,300"])
def test_all_runs_of_a_size_are_missing(
    tmp_path: Path, trace: str, monkeypatch: pytest.MonkeyPatch, blocks: str
) -> None:
    fail_after(monkeypatch, lambda run: run.blocks in (300, None))
    arguments = ("--blocks", blocks, "--bound", "--arrivals", "trace", *POLICIES)
    page, record = partial_page(tmp_path, trace, *arguments)
    assert record["missing_runs"] == 2
    assert "Unlimited" in page.texts["span"]
    assert ("Highest hit share" in page.texts["span"]) == (blocks == "150,300")
    summaries = ["300 blocks", "300 blocks"] if blocks == "150,300" else []
    assert [text.strip() for text in page.texts.get("summary", [])] == summaries
    assert "Outcome of the prompt tokens, 150 blocks" not in page.plots


def test_no_pool_was_played(tmp_path: Path, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_after(monkeypatch, lambda run: run.blocks is None)
    page, record = partial_page(tmp_path, trace, "--blocks", "150,300", "--arrivals", "trace")
    shares = traces_of(page.plots["Hit share over the pool size"])
    assert shares["unlimited"]["y"] == [record["results"][0]["hit_share"]] * 2
    assert list(shares) == ["unlimited"]


def test_runs_of_an_experiment_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_after(monkeypatch, lambda run: run.blocks is None or run.workload.quantity != 20)
    page, rows = partial_page(tmp_path, command=("experiment", "prefixes", "--policy", "fifo"))
    assert (len(rows["rows"]), rows["missing_runs"]) == (7, 1)
    assert page.texts["dd"][-2:] == ["1 run", MESSAGE]
    (plot,) = page.plots.values()
    shares = traces_of(plot)
    assert [share is None for share in shares["fifo"]["y"]] == [False, True, False, False]
    assert None not in shares["unlimited"]["y"]


def partial_page(
    folder: Path, *arguments: str, command: tuple[str, ...] = ("replay",)
) -> tuple[PageText, dict[str, Any]]:
    """The page and the JSON of a command whose cluster fails; it draws a plot too."""
    page, record, plot = (folder / name for name in ("page.html", "page.json", "plot.png"))
    outputs = ("--html", page, "--json", record, "--plot", plot)
    result = kvoxide(*command, *arguments, *outputs)
    assert result.exit_code == 1
    assert result.output.endswith(f"Error: {MESSAGE}\n")
    assert plot.stat().st_size > 0
    return PageText(page.read_text(encoding="utf-8")), json.loads(record.read_bytes())


def test_settings_stand_at_the_head(tmp_path: Path, trace: str) -> None:
    arguments = ("--blocks", "4000", "--arrivals", "trace", "--speed", "2", "--requests", "30")
    page, _ = replay_page(tmp_path, trace, *arguments, "--step-time", "base=8ms")
    text = " ".join(page.texts["dd"])
    for part in (
        trace,
        "mooncake",
        "30 requests, 30,000 prompt tokens, 600 output tokens",
        "the first 30 requests",
        "full:16",
        "4,000 blocks",
        "256 requests at a time, 8,192 tokens per step",
        "at the trace's times, at speed 2",
        "base 8 ms, prefill 27 µs, context 34 ns, running 10 µs",
    ):
        assert part in text


def test_texts_stay_texts(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>&amp;{{ 7 * 7 }}<script>alert(1)<"
    trace = write_trace(tmp_path / name, *(line(prompt(n % 3)) for n in range(6)))
    page, _ = replay_page(tmp_path, trace)
    assert any(name in text for text in page.texts["h1"])
    assert trace in page.texts["dd"]
    assert all(tag != "img" for tag, _ in page.elements)
    assert len(page.scripts) == 3


def test_only_its_own_scripts_may_run(tmp_path: Path, trace: str) -> None:
    page, _ = replay_page(tmp_path, trace)
    (policy,) = [
        a["content"] or "" for tag, a in page.elements if tag == "meta" and "http-equiv" in a
    ]
    assert policy.startswith("default-src 'none'; ")
    directive = policy.split("script-src ")[1]
    assert re.fullmatch(r"('sha256-[A-Za-z0-9+/=]{44}' ?){2}", directive)
    addresses = [
        a.get("src") or a.get("href") for _, a in page.elements if "src" in a or "href" in a
    ]
    assert addresses == ["data:,"]


@pytest.mark.parametrize("name", [b"caf\xe9", b"\xf0\x9f\x98\x80"])
def test_any_file_name_can_be_shown(tmp_path: Path, name: bytes) -> None:
    import os

    trace = write_trace(tmp_path / os.fsdecode(name), line(prompt(0)))
    page, _ = replay_page(tmp_path, trace)
    assert page.plots


def test_a_page_when_every_request_is_rejected(tmp_path: Path, trace: str) -> None:
    page, _ = replay_page(tmp_path, trace, "--blocks", "8", "--arrivals", "trace")
    (row, _) = page.table("rejected")
    assert row["rejected"] == "40"


def test_light_colours_differ_so_that_each_has_its_dark_one() -> None:
    pairs = (
        *colours.POLICIES,
        colours.REFERENCE,
        *colours.FATES.values(),
        *colours.BLOCKS.values(),
        *colours.EVICTIONS.values(),
    )
    assert len(colours.dark_colours()) == len(pairs)


@pytest.mark.parametrize("package", ["plotly", "jinja2"])
def test_a_missing_package_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else found(name)
    )
    result = kvoxide("replay", tmp_path / "no-such-trace", "--html", tmp_path / "page.html")
    assert result.exit_code == 2
    assert f"pages need {package}; install kvoxide with its extra 'html'" in result.output
    assert not list(tmp_path.iterdir())


def test_a_page_is_not_written_over_another_result(tmp_path: Path) -> None:
    path = tmp_path / "same"
    result = kvoxide("replay", "--json", path, "--html", path)
    assert result.exit_code == 1
    assert "is named for two results" in result.output


def test_experiments_have_a_page(tmp_path: Path) -> None:
    page, record = tmp_path / "page.html", tmp_path / "rows.json"
    succeed("experiment", "prefixes", "--policy", "fifo", "--html", page, "--json", record)
    text = PageText(page.read_text(encoding="utf-8"))
    (plot,) = text.plots.values()
    rows = json.loads(record.read_bytes())["rows"]
    for name, mark in traces_of(plot).items():
        of_policy = [row for row in rows if row["policy"] == name]
        assert mark["x"] == [row["prefixes"] for row in of_policy]
        assert mark["y"] == [row["hit_share"] for row in of_policy]
    assert [row["policy"] for row in text.table("15")] == ["fifo", "unlimited"]
