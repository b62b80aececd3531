"""``python -m tests.proof.recorded``: runs random servers, and compares their hits with their
replays' hits."""

import argparse
import sys
import tempfile
from pathlib import Path

from kvoxide.vllm.environment.releases import installed_version

from tests.proof.recorded.playing import as_format_1, replayed_hits
from tests.proof.recorded.server import STEPS, serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.recorded", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first server")
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each server")
    given = parser.parse_args()
    num_different = 0
    print(
        "| seed | server hits | replay | format 1 | resets | skips | aborts | preempted | server |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for seed in range(given.seed, given.seed + given.servers):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            counted = serve(seed, folder / "recorded", given.steps)
            hits = replayed_hits(folder / "recorded", folder / "json")
            before = replayed_hits(
                as_format_1(folder / "recorded", folder / "old"), folder / "json"
            )
        num_different += hits != counted.hits
        seen = counted.seen
        told = [seen[name] for name in ("reset", "skips", "abort", "preempted")]
        row = [seed, _sum(counted.hits), _sum(hits), _sum(before), *told, counted.text]
        print("|", " | ".join(map(str, row)), "|", flush=True)
    print(f"vLLM {installed_version()}: {given.servers} servers, {num_different} differ")
    return 1 if num_different else 0


def _sum(hits: tuple[int, ...]) -> str:
    return f"{sum(hits):,}" if len(hits) == 1 else f"{sum(hits):,} ({'+'.join(map(str, hits))})"


if __name__ == "__main__":
    sys.exit(main())
