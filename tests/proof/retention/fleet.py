"""``python -m tests.proof.retention.fleet TRACE``: prints how far ``adaptive`` is on the way from
vLLM's default to the clairvoyant policy, on real sessions of coding agents in a closed loop.

TRACE is ``agents_closed_64.jsonl.zst``: 57 sessions of kv-cache-tester, with a delay per turn. With
``--before``, a file that an earlier build wrote with ``--output``, a column says which part of the
way from the earlier ``adaptive`` to the clairvoyant policy is gone.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import kvoxide
from kvoxide._core import Serving, Simulation, Trace
from kvoxide.lab.replay.input import DEFAULT_POLICY, parse_policy, preset_groups, read_trace

from .playing import ADAPTIVE, MAX_BATCHED_TOKENS

POOLS: Final = (
    *(("qwen3-next", blocks) for blocks in (2_000, 3_000, 6_000)),
    *(("gpt-oss", blocks) for blocks in (60_000, 100_000, 200_000)),
)
CONCURRENCY: Final = 16


@dataclass(frozen=True)
class Row:
    """Hit shares in % in one pool."""

    preset: str
    blocks: int
    default: float
    adaptive: float
    clairvoyant: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.retention.fleet")
    parser.add_argument("trace")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table as JSON")
    parser.add_argument("--before", type=Path, metavar="FILE", help="compare with such a file")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="pools at a time")
    parser.add_argument("--requests", type=int, metavar="N", help="play only the first N requests")
    arguments = parser.parse_args()
    before = _read(arguments.before) if arguments.before else []
    trace = read_trace(arguments.trace, limit=arguments.requests).trace
    trace.close_loop()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(lambda where: played_row(trace, *where), POOLS))
    print("\n".join(table(rows, before)))
    if arguments.output:
        record = {"kvoxide": kvoxide.__version__, "rows": [asdict(row) for row in rows]}
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
    return 0


def played_row(trace: Trace, preset: str, blocks: int) -> Row:
    """Play both policies. The bound is the higher one of their schedules."""
    shares, bounds = {}, []
    for policy in (DEFAULT_POLICY, ADAPTIVE):
        result = Simulation(
            trace,
            preset_groups(preset).specs,
            blocks,
            policy=parse_policy(policy).policy,
            concurrency=CONCURRENCY,
            max_batched_tokens=MAX_BATCHED_TOKENS,
            bound=True,
            serving=Serving(speed=1.0, closed_loop=True),
        ).run()
        assert result.bound_hit_tokens is not None
        shares[policy] = 100 * result.hit_tokens / result.prompt_tokens
        bounds.append(100 * result.bound_hit_tokens / result.prompt_tokens)
    return Row(preset, blocks, shares[DEFAULT_POLICY], shares[ADAPTIVE], max(bounds))


def table(rows: list[Row], before: list[Row]) -> list[str]:
    """Return a table in Markdown."""
    earlier = {(row.preset, row.blocks): row for row in before}
    heads = ["preset", "blocks", "default", "adaptive", "clairvoyant"]
    heads += ["adaptive before", "part of the way"] if before else []
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        shares = (row.default, row.adaptive, row.clairvoyant)
        values = [row.preset, f"{row.blocks:,}", *(f"{share:.1f}" for share in shares)]
        old = earlier.get((row.preset, row.blocks))
        if old is not None:
            values += [f"{old.adaptive:.1f}", f"{part_of_the_way(old, row):.0%}"]
        lines.append(f"| {' | '.join(values)} |")
    return lines


def part_of_the_way(before: Row, after: Row) -> float:
    """Return the part of the way from the earlier ``adaptive`` to the clairvoyant policy."""
    way = after.clairvoyant - before.adaptive
    return (after.adaptive - before.adaptive) / way if way else 0.0


def _read(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())["rows"]]


if __name__ == "__main__":
    sys.exit(main())
