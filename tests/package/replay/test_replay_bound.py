"""``--bound``: the line of what a policy that knows the future could hit."""

import json
from pathlib import Path

import numpy as np
import pytest
from kvoxide._core import KVCacheGroupSpec, Policy, Simulation, Trace
from kvoxide.lab.replay.input import parse_groups, parse_policy, read_trace
from kvoxide.lab.replay.results import comparison_hit_shares, draw_hit_shares, draw_trace
from kvoxide.lab.replay.results.outcome_records import LOSSES
from kvoxide.lab.replay.run import Comparison, Settings, compare

from tests.testing.traces import line, prompt, replay_json, succeed, write_trace

# The reference string of the textbooks. Belady's rule misses 9 with three frames, 8 with four and
# 6 with six.
REFERENCES = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1]
# The frames, the null block, and the block of a request's last token.
POOL_OF_3, POOL_OF_4, POOL_OF_6 = 5, 6, 8


@pytest.fixture
def pages(tmp_path: Path) -> str:
    """Prompts of one block and a token, one for each reference."""
    return write_trace(tmp_path / "t.jsonl", *(line(prompt(page, 17), 0) for page in REFERENCES))


def options(*pools: int) -> list[str]:
    return ["--concurrency", "1", "--blocks", ",".join(map(str, pools)), "--bound"]


def test_the_line_is_beladys_where_a_page_is_a_block(tmp_path: Path, pages: str) -> None:
    policies = ["--policy", "fifo", "--policy", "uncached-first"]
    record = replay_json(tmp_path, pages, *options(POOL_OF_3, POOL_OF_4, POOL_OF_6), *policies)
    lines = [(r["policy"], r["blocks"]) for r in record["results"]]
    assert lines[6:] == [
        ("clairvoyant", POOL_OF_3),
        ("clairvoyant", POOL_OF_4),
        ("clairvoyant", POOL_OF_6),
        ("unlimited", None),
    ]
    bounds = record["results"][6:9]
    assert [bound["hit_tokens"] for bound in bounds] == [16 * (20 - n) for n in (9, 8, 6)]
    assert record["results"][9]["hit_tokens"] == 16 * (20 - 6)
    for result in record["results"][:6]:
        bound = bounds[[POOL_OF_3, POOL_OF_4, POOL_OF_6].index(result["blocks"])]
        assert result["hit_tokens"] <= bound["hit_tokens"]
        assert result["schedule_of"] is None
    assert record["settings"]["bound"] is True


def test_a_bound_has_no_pool_to_tell_of(tmp_path: Path, pages: str) -> None:
    record = replay_json(tmp_path, pages, *options(POOL_OF_3))
    pool, bound, unlimited = record["results"]
    assert list(bound) == list(pool) == list(unlimited)
    assert bound["schedule_of"] == "vllm"
    assert bound["hit_share"] == 11 * 16 / (20 * 17)
    assert (bound["requests"], bound["prompt_tokens"]) == (20, 20 * 17)
    nothing = {name for name, value in unlimited.items() if value is None}
    losses = {f"{loss}_share" for loss in LOSSES}
    expected = nothing - {"blocks", "schedule_of"} | losses
    assert expected == {n for n, value in bound.items() if value is None}


def test_the_table_has_the_line_only_if_it_is_asked_for(pages: str) -> None:
    with_bound = succeed("replay", pages, *options(POOL_OF_3)).output
    words = [row.split()[0] for row in with_bound.splitlines() if row.strip()]
    names = ["vllm", "clairvoyant", "unlimited"]
    assert [word for word in words if word in names] == names
    assert "2 runs in" in with_bound
    assert "clairvoyant" not in succeed("replay", pages, *options(POOL_OF_3)[:-1]).output


def test_the_line_stands_in_the_table_of_pool_sizes(pages: str) -> None:
    output = succeed("replay", pages, *options(POOL_OF_3, POOL_OF_6)).output
    rows = [row.split() for row in output.splitlines() if row.split()[:1] == ["clairvoyant"]]
    assert rows[-1] == ["clairvoyant", "51.8%", "65.9%"]


def test_per_request_lines_add_up_to_the_bound(tmp_path: Path, pages: str) -> None:
    path = tmp_path / "lines.jsonl"
    succeed("replay", pages, *options(POOL_OF_4), "--per-request", path)
    records = [json.loads(text) for text in path.open()]
    hits = [r["hit_tokens"] for r in records if r["policy"] == "clairvoyant"]
    assert len(hits) == 20
    assert sum(hits) == 12 * 16


def comparison_of(pages: str, policies: str, *pools: int) -> Comparison:
    trace = read_trace(pages, limit=None, skip_bad=False, tokens_per_id=None)
    named = tuple(map(parse_policy, policies.split()))
    settings = Settings(parse_groups("full:16"), pools, named, 1, 8192, has_bound=True)
    return compare(settings, trace, quiet=True)


def test_the_plots_have_a_line_for_it(pages: str) -> None:
    several = comparison_of(pages, "fifo pin", POOL_OF_3, POOL_OF_6)
    axes = draw_hit_shares(comparison_hit_shares(several), "").axes[0]
    drawn = {str(drawn.get_label()): drawn for drawn in axes.lines}
    assert list(drawn) == ["fifo", "pin", "clairvoyant", "unlimited"]
    shares = np.asarray(drawn["clairvoyant"].get_ydata()).tolist()
    assert shares == pytest.approx([11 / 20 * 16 / 17, 14 / 20 * 16 / 17])
    hits, fates, pool, *_ = draw_trace(comparison_of(pages, "fifo", POOL_OF_3).outcomes, "").axes
    assert "clairvoyant" in [drawn.get_label() for drawn in hits.lines]
    assert len(pool.lines) == 2, "in use and cached, of the run alone"
    assert [text.get_text() for text in fates.get_yticklabels()] == ["fifo", "unlimited"]


def test_the_line_is_the_highest_of_the_policies_bounds(tmp_path: Path) -> None:
    """Of runs whose schedules differ: what is hit decides when requests are admitted."""
    prompts = [[*prompt(n % 5, 50 * (n % 7)), *prompt(100 + n, 40)] for n in range(60)]
    trace_path = write_trace(tmp_path / "t", *(line(each, 30) for each in prompts))
    policies = ["fifo", "uncached-first", "interval=0", "pin=1"]
    chosen = [word for policy in policies for word in ("--policy", policy)]
    groups = ["--groups", "full:16,swa:16:64", "--max-batched-tokens", "100"]
    arguments = [trace_path, *chosen, *groups, "--blocks", "70", "--bound"]
    results = replay_json(tmp_path, *arguments)["results"]
    *played, line_of_all, _ = results
    trace = Trace()
    for each in prompts:
        trace.push_prompt(each, 30)
    bounds = {
        policy: Simulation(
            trace,
            parse_groups("full:16,swa:16:64").specs,
            70,
            policy=parse_policy(policy).policy,
            max_batched_tokens=100,
            bound=True,
        )
        .run()
        .bound_hit_tokens
        for policy in policies
    }
    assert line_of_all["hit_tokens"] == max(bound or 0 for bound in bounds.values())
    assert bounds[line_of_all["schedule_of"]] == line_of_all["hit_tokens"]
    assert all(run["hit_tokens"] <= line_of_all["hit_tokens"] for run in played)
    assert len(set(bounds.values())) > 1


def test_results_have_a_bound_only_if_it_is_asked_for() -> None:
    trace = Trace()
    for page in REFERENCES:
        trace.push_prompt(list(prompt(page, 17)), 0)
    groups = [KVCacheGroupSpec("full_attention", 16)]
    unasked = Simulation(trace, groups, POOL_OF_3, policy=Policy(), concurrency=1).run()
    assert unasked.bound_hit_tokens is None
    assert unasked.bound_per_request is None
    assert unasked.bound_seconds is None
    asked = Simulation(trace, groups, POOL_OF_3, concurrency=1, report_from=2, bound=True).run()
    assert asked.bound_hit_tokens == 11 * 16
    assert asked.bound_per_request is not None
    assert asked.bound_per_request[:2].tolist() == [-1, -1]
    assert asked.bound_per_request[2:].sum() == 11 * 16
    assert asked.bound_seconds is not None
    never_evicts = Simulation(trace, groups, None, concurrency=1, bound=True).run()
    assert never_evicts.bound_hit_tokens == never_evicts.hit_tokens == 14 * 16
