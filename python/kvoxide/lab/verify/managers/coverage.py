"""Counts what a run of random traffic reached, so that its number of calls has a meaning."""

from collections import Counter
from collections.abc import Iterable

from kvoxide.lab.verify.managers.scenarios import Scenario


class Coverage:
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.scenarios: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()

    @property
    def num_calls(self) -> int:
        return self.calls.total()

    def add(self, other: "Coverage") -> None:
        self.calls += other.calls
        self.operations += other.operations
        self.scenarios += other.scenarios
        self.seen += other.seen

    def note_scenario(self, scenario: Scenario) -> None:
        self.scenarios.update(_features(scenario))

    def note_hit(self, num_tokens: int, alignment: int, boundary: int) -> None:
        self.seen[f"hit of {_length_class(num_tokens // alignment)}"] += 1
        if boundary > 0:
            self.seen["junction boundary"] += 1

    def report(self) -> str:
        parts = (
            ("calls", self.calls),
            ("operations", self.operations),
            ("scenarios", self.scenarios),
            ("seen", self.seen),
        )
        lines = [f"{self.num_calls:,} calls compared"]
        for title, counts in parts:
            lines.append(f"\n{title}")
            lines += [f"  {count:>12,}  {name}" for name, count in sorted(counts.items())]
        return "\n".join(lines)


def _length_class(num_blocks: int) -> str:
    if num_blocks == 0:
        return "0 blocks"
    if num_blocks == 1:
        return "1 block"
    return "2-4 blocks" if num_blocks < 5 else "5+ blocks"


def _features(scenario: Scenario) -> Iterable[str]:
    yield "all"
    yield f"{len(scenario.groups)} groups"
    yield from {group.kind for group in scenario.groups}
    if len({g.block_size for g in scenario.groups}) > 1:
        yield "different block sizes"
    if len({g.kind for g in scenario.groups}) > 1:
        yield "different kinds"
    if any(g.has_bounded_replay for g in scenario.groups):
        yield "bounded replay"
    for group in scenario.state_groups[:1]:
        yield f"mamba {group.mamba_mode}"
        yield f"{len(scenario.state_groups)} mamba groups"
        yield f"{group.num_speculative_blocks} speculative blocks"
        if group.num_prefill_checkpoint_blocks:
            yield "prefill checkpoints"
    if scenario.dcp_world_size > 1:
        yield f"context parallelism {scenario.dcp_world_size}"
    yield f"retention {_retention_class(scenario)}"
    for name in (
        "enable_caching",
        "use_eagle",
        "num_hash_lookahead_tokens",
        "num_prefill_lookahead",
        "log_stats",
        "enable_events",
        "needs_zeroing",
        "watermark",
        "ready_made_hashes",
        "collects_metrics",
        "shared_prefix_checkpoint",
    ):
        if getattr(scenario, name):
            yield name


def _retention_class(scenario: Scenario) -> str:
    interval = scenario.retention_interval
    return "None" if interval is None else "0" if interval == 0 else "n"
