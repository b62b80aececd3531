"""Traffic of the kind in public reports about missing hits, on vLLM's own scheduler.

Each report has the outcome that kvoxide names for it. docs/lab/reports.md has what its discussion
found. The pools are small, and sizes of blocks and prompts are the reported ones.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from kvoxide.outcomes import largest_avoidable
from kvoxide.vllm.environment import releases
from vllm.plugins import load_general_plugins

load_general_plugins()

from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    MambaSpec,
    SlidingWindowSpec,
)

from tests.testing.paths import ROOT  # noqa: E402
from tests.testing.vllm_releases import NEWEST  # noqa: E402
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

pytestmark = pytest.mark.skipif(
    releases.installed_version() != NEWEST, reason="the reports are played on the newest vLLM"
)

NAME = "request {}"


def prompt(text: int, length: int) -> list[int]:
    """Return the first tokens of a text. Different texts share no token."""
    return list(range(text * 100_000, text * 100_000 + length))


def full(block_size: int) -> Any:
    return FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float16
    )


def window(block_size: int, tokens: int) -> Any:
    return SlidingWindowSpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=8,
        dtype=torch.float16,
        sliding_window=tokens,
    )


def states(block_size: int, drafts: int = 0) -> Any:
    return MambaSpec(
        block_size=block_size,
        shapes=((8,),),
        dtypes=(torch.float16,),
        mamba_cache_mode="align",
        num_speculative_blocks=drafts,
    )


def world_of(*specs: Any, unit: int | None = None, **changes: Any) -> SchedulerWorld:
    """Return a scheduler. ``unit`` is vLLM's --prefix-match-unit."""
    block_size = max(spec.block_size for spec in specs)
    modes = [
        SimpleNamespace(block_size=spec.block_size, mamba_mode="align")
        for spec in specs
        if isinstance(spec, MambaSpec)
    ]
    settings = {
        "scheduler_block_size": block_size,
        "hash_block_size": unit or block_size,
        "state_groups": modes,
        "max_model_len": 20_000,
        "max_num_batched_tokens": 16_384,
        "interval": 0,
        "num_blocks": 600,
    }
    return SchedulerWorld(*specs, **(settings | changes))


def serve(world: SchedulerWorld, *prompts: list[int], salts: tuple[str, ...] = ()) -> None:
    """Serve prompts one after the other."""
    for number, tokens in enumerate(prompts):
        salt = salts[number] if salts else None
        world.serve(NAME.format(number), tokens, 1, salt=salt)


def state_in_the_part_of_one_request() -> SchedulerWorld:
    world = world_of(full(528), states(528))
    parts = [(family, request) for family in range(3) for request in range(2)]
    serve(world, *(prompt(f, 1500) + prompt(10 + 2 * f + r, 700) for f, r in parts))
    return world


def prompts_shorter_than_a_block() -> SchedulerWorld:
    world = world_of(full(1056), states(1056), max_num_batched_tokens=4096)
    serve(world, prompt(1, 561), prompt(1, 561) + prompt(2, 9))
    return world


def many_prompts_shorter_than_a_block() -> SchedulerWorld:
    world = world_of(full(1056), states(1056), max_num_batched_tokens=4096)
    serve(world, *(prompt(1, 561) + prompt(2 + n, 20) for n in range(6)))
    return world


def one_boundary_with_drafts_and_priorities() -> SchedulerWorld:
    drafts = {"use_eagle": True, "num_spec_tokens": 3, "num_lookahead_tokens": 3}
    world = world_of(
        full(1600), states(1600, 3), policy="priority", drafts_with_cache=True, **drafts
    )
    serve(world, *(prompt(1, 1838) + prompt(2 + n, 8) for n in range(2)))
    return world


def windows_of_sessions_in_turns() -> SchedulerWorld:
    """The retention interval is None, as it was by default in the reported releases."""
    windows = [window(16, 128)] * 5
    world = world_of(full(16), *windows, interval=None, num_blocks=1310, max_num_batched_tokens=128)
    for turn in range(3):
        for seat in range(6):
            tokens = prompt(seat, 640) + prompt(10 + 10 * turn + seat, 20)
            world.serve(f"{seat} {turn}", tokens, 8)
    return world


def windows_that_forbid_hits_inside_blocks() -> SchedulerWorld:
    world = world_of(full(1600), states(1600), window(64, 2048), unit=16, num_blocks=2000)
    serve(world, *(prompt(1, 1500) + prompt(2 + n, 30) for n in range(4)))
    return world


def requests_with_salts_of_their_own() -> SchedulerWorld:
    world = world_of(full(16))
    serve(world, *[prompt(1, 1000)] * 4, salts=("a", "b", "c", "d"))
    return world


def requests_with_prompt_logprobs() -> SchedulerWorld:
    world = world_of(full(16))
    for number in range(3):
        world.serve(NAME.format(number), prompt(1, 500), 1, prompt_logprobs=1)
    return world


class Report(NamedTuple):
    """A report, traffic of its kind, and the outcome that explains most of the lost tokens."""

    number: str
    traffic: Callable[[], SchedulerWorld]
    outcome: str


REPORTS = (
    Report("#45238", state_in_the_part_of_one_request, "never_cached"),
    Report("#51198", prompts_shorter_than_a_block, "below_block"),
    Report("#51250", many_prompts_shorter_than_a_block, "below_block"),
    Report("#52897", one_boundary_with_drafts_and_priorities, "below_block"),
    Report("#48435", windows_of_sessions_in_turns, "evicted_tail"),
    Report("#53786", windows_that_forbid_hits_inside_blocks, "below_block"),
    Report("#16016", requests_with_salts_of_their_own, "other_salt_or_adapter"),
    Report("(none)", requests_with_prompt_logprobs, "not_cacheable"),
)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.number)
@pytest.mark.parametrize("mode", ["require", "shadow"])
def test_the_reported_loss_is_explained(
    mode: str, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = report.traffic()
    manager = world.scheduler.kv_cache_manager
    engine = manager.engine if mode == "require" else manager.shadow.native.engine
    counts = engine.outcome_report().outcomes
    assert counts["hit_gpu"] + counts["hit_answer"] == world.hits
    found = largest_avoidable(counts)
    assert found is not None
    assert found[0].name == report.outcome, counts
    assert found[1] >= 0.2 * sum(counts.values()), counts


def test_a_longer_prefix_hits_as_the_discussion_measured() -> None:
    """A prefix of 1,200 tokens hits the one block of 1,056 tokens."""
    world = world_of(full(1056), states(1056), max_num_batched_tokens=4096)
    serve(world, prompt(1, 1200), prompt(1, 1200) + prompt(2, 9))
    assert world.hits == 1056


def test_the_default_interval_keeps_what_the_sessions_need() -> None:
    """vLLM's default since then keeps one tail per prompt, so turns hit again."""
    windows = [window(16, 128)] * 5
    world = world_of(full(16), *windows, num_blocks=1310, max_num_batched_tokens=128)
    for turn in range(3):
        for seat in range(6):
            tokens = prompt(seat, 640) + prompt(10 + 10 * turn + seat, 20)
            world.serve(f"{seat} {turn}", tokens, 8)
    assert world.hits == 6 * 640


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_the_scheduling_policy_makes_no_difference(policy: str) -> None:
    """Without drafts, one boundary is enough under both policies."""
    world = world_of(full(1600), states(1600), policy=policy)
    serve(world, *(prompt(1, 1838) + prompt(2 + n, 8) for n in range(2)))
    assert world.hits == 1600


def test_the_page_has_each_report_with_its_outcome() -> None:
    page = (ROOT / "docs" / "lab" / "reports.md").read_text("utf-8")
    for report in REPORTS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {report.number} ")]
        assert f"`{report.outcome}`" in row
