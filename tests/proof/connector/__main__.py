"""``python -m tests.proof.connector``: the long run, and the run of one seed again."""

import argparse
import logging
import sys
import time
from collections import Counter

from kvoxide.vllm.environment.releases import installed_version

from .comparison import Comparison, Difference
from .scenario import Scenario

STEPS_PER_RUN = 400


def main() -> int:
    arguments = _parser().parse_args()
    logging.disable(logging.ERROR)
    seen: Counter[str] = Counter()
    start, num_differences, seed = time.monotonic(), 0, arguments.seed
    while seen["steps"] < arguments.steps or seen["hooks"] < arguments.hooks:
        scenario = Scenario.draw(seed)
        comparison = Comparison(scenario)
        try:
            seen += comparison.run(arguments.steps_per_run)
        except Difference as difference:
            print(f"seed {seed}, step {comparison.counts['steps']}, {difference}"[:4000])
            num_differences += 1
            if not arguments.keep_going:
                break
        seen.update(f"runs: {what}" for what in ("all", *scenario.words()))
        seed += 1
    for name, count in sorted(seen.items()):
        print(f"  {count:>12,}  {name}")
    print(
        f"vLLM {installed_version()}'s offloading connector and kvoxide's: {seen['steps']:,} "
        f"steps, {num_differences} differences in {time.monotonic() - start:.0f} s"
    )
    return 1 if num_differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.connector", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run")
    parser.add_argument("--steps", type=int, default=20_000, help="at least so many in all")
    parser.add_argument("--hooks", type=int, default=0, help="at least so many in all")
    parser.add_argument("--steps-per-run", type=int, default=STEPS_PER_RUN)
    parser.add_argument("--keep-going", action="store_true", help="print every difference")
    return parser


if __name__ == "__main__":
    sys.exit(main())
