"""The hits of the requests of the Mooncake trace with vLLM's own manager, computed or recorded.

``python -m tests.proof.sameness.trace_hits`` computes all of them again and compares; ``--write``
records them. The record holds for one release and for the trace that comes with the tests. vLLM's
manager has no other input, and no part of kvoxide runs.
"""

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvoxide.lab.verify.managers.scenarios import Group, Scenario
from kvoxide.vllm.environment.releases import installed_version

from .mooncake import SequentialRun, trace_lines, trace_path

RECORD: Final = Path(__file__).with_name("data") / "mooncake_hits_of_vllm.json"
NUM_REQUESTS = 500
MAX_MODEL_LEN = 1 << 20
POOL_THAT_NEVER_EVICTS = 1_000_000

LLAMA = (Group("full_attention", 16),)
GEMMA_3 = (Group("full_attention", 16), *[Group("sliding_window", 16, 1024)] * 5)
GPT_OSS = (Group("full_attention", 16), Group("sliding_window", 16, 128))
DEEPSEEK_V4 = (
    Group("full_attention", 256),
    Group("sliding_window", 64, 128),
    Group("sliding_window", 4, 8),
    Group("sliding_window", 8, 128),
)
DEEPSEEK_V4_1 = (
    Group("mla_attention", 256),
    Group("sliding_window_mla", 32, 128, prefix_cacheable=False),
    Group("circular_buffer", 8, prefix_cacheable=False),
)


def states(block_size: int, **sizes: Any) -> Group:
    return Group("mamba", block_size, mamba_mode="align", **sizes)


QWEN3_NEXT = (*[states(544)] * 3, Group("full_attention", 544))
NEMOTRON_H = (
    *[states(1040, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)] * 6,
    Group("full_attention", 1040),
)
KIMI_LINEAR = (*[states(1920)] * 3, Group("mla_attention", 1920))
INSIDE_BLOCKS = (Group("full_attention", 16), *[states(528)] * 2)
WIDE_BLOCKS = (Group("full_attention", 16384), states(16384))


@dataclass(frozen=True)
class Case:
    """A configuration. With ``num_blocks=None``, the pool never evicts."""

    groups: tuple[Group, ...]
    num_blocks: int | None
    retention_interval: int | None = None


CASES = {
    "llama": Case(LLAMA, 200_000),
    "llama, small pool": Case(LLAMA, 20_000),
    "llama, unlimited": Case(LLAMA, None),
    "gemma-3": Case(GEMMA_3, 1_000_000),
    "gemma-3, interval": Case(GEMMA_3, 400_000, retention_interval=8192),
    "gpt-oss": Case(GPT_OSS, 400_000),
    "deepseek-v4": Case(DEEPSEEK_V4, 300_000),
    "deepseek-v4, interval": Case(DEEPSEEK_V4, 100_000, retention_interval=8192),
    "deepseek-v4.1": Case(DEEPSEEK_V4_1, 20_000),
    "deepseek-v4.1, small pool": Case(DEEPSEEK_V4_1, 4_000),
    "qwen3-next": Case(QWEN3_NEXT, 20_000),
    "qwen3-next, small pool": Case(QWEN3_NEXT, 2_000),
    "qwen3-next, unlimited": Case(QWEN3_NEXT, None),
    "qwen3-next, interval": Case(QWEN3_NEXT, 2_000, retention_interval=0),
    "nemotron-h": Case(NEMOTRON_H, 20_000),
    "nemotron-h, small pool": Case(NEMOTRON_H, 3_000),
    "kimi-linear": Case(KIMI_LINEAR, 10_000),
    "hits inside blocks": Case(INSIDE_BLOCKS, 200_000),
    "hits inside blocks, small pool": Case(INSIDE_BLOCKS, 40_000),
    "hits inside blocks, unlimited": Case(INSIDE_BLOCKS, None),
    "blocks wider than a step": Case(WIDE_BLOCKS, 1_000),
}


def hits(name: str, lines: Sequence[bytes]) -> list[int]:
    """Return the hit tokens of each request. They come from the record if it is about these
    lines."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    if record["about"] == about(lines):
        assert record["cases"][name] == repr(CASES[name]), f"{name}: record it again"
        recorded: list[int] = record["hits"][name]
        return recorded
    return vllm_hits(CASES[name], lines)


def vllm_hits(case: Case, lines: Sequence[bytes]) -> list[int]:
    block_sizes = [group.block_size for group in case.groups]
    hashed = [group.block_size for group in case.groups if group.prefix_cacheable]
    scenario = Scenario(
        groups=case.groups,
        num_blocks=case.num_blocks or POOL_THAT_NEVER_EVICTS,
        max_model_len=MAX_MODEL_LEN,
        scheduler_block_size=math.lcm(*block_sizes),
        hash_block_size=math.gcd(*hashed),
        retention_interval=case.retention_interval,
    )
    return list(SequentialRun(scenario).hit_tokens(lines))


def about(lines: Sequence[bytes]) -> dict[str, str | None]:
    """Return what a record depends on."""
    return {"vllm": installed_version(), "trace": hashlib.sha256(b"".join(lines)).hexdigest()}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.sameness.trace_hits", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="record what is computed")
    lines = trace_lines(trace_path(), NUM_REQUESTS)
    computed = {
        "about": about(lines),
        "cases": {name: repr(case) for name, case in CASES.items()},
        "hits": {name: vllm_hits(case, lines) for name, case in CASES.items()},
    }
    if parser.parse_args().write:
        RECORD.write_text(json.dumps(computed) + "\n", encoding="utf-8")
    is_same = json.loads(RECORD.read_text(encoding="utf-8")) == computed
    requests = len(CASES) * len(lines)
    print(f"{requests} requests: vLLM's hits {'as' if is_same else 'NOT as'} recorded")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
