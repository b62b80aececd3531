"""``python -m tests.proof.scheduler``: the long run, and the repeated plan of one seed."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from kvoxide.lab.verify.managers.scenarios import DEFAULT_FAMILIES, EVERY_FAMILY, FAMILIES
from kvoxide.lab.verify.schedulers.comparison import Comparison, Difference, Ended
from kvoxide.lab.verify.schedulers.plan import random_plan
from kvoxide.vllm.environment.releases import installed_version

STEPS_PER_PLAN = 300


def main() -> int:
    arguments = _parser().parse_args()
    steps_per_plan = min(arguments.steps, STEPS_PER_PLAN)
    num_plans = max(1, arguments.steps // steps_per_plan)
    seen: Counter[str] = Counter()
    start = time.monotonic()
    num_differences = 0
    for seed in range(arguments.seed, arguments.seed + num_plans):
        try:
            seen += run(seed, arguments.families, steps_per_plan)
        except Difference as difference:
            print(f"seed {seed}, {difference}")
            num_differences += 1
            if not arguments.keep_going:
                break
    for name, count in sorted(seen.items()):
        print(f"  {count:>12,}  {name}")
    print(
        f"vLLM {installed_version()}'s scheduler with vLLM's manager and kvoxide's: "
        f"{seen['step']:,} steps, {num_differences} differences "
        f"in {time.monotonic() - start:.0f} s"
    )
    return 1 if num_differences else 0


def run(seed: int, families: Sequence[str], num_steps: int) -> Counter[str]:
    plan = random_plan(seed, families)
    comparison = Comparison(plan)
    try:
        while comparison.num_steps < num_steps:
            comparison.run_step()
    except Ended:
        comparison.seen["plan ended by an exception"] += 1
    comparison.seen.update({group.kind: 1 for group in plan.scenario.groups})
    comparison.seen["plan"] += 1
    comparison.seen["plan, asynchronous"] += plan.is_async
    comparison.seen["plan with a connector"] += plan.connector
    comparison.seen["plan with drafts"] += plan.num_spec_tokens > 0
    return comparison.seen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.scheduler", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first plan")
    parser.add_argument("--steps", type=int, default=20_000, help="steps in all")
    parser.add_argument("--keep-going", action="store_true", help="print every difference")
    parser.add_argument(
        "--families",
        nargs="+",
        default=DEFAULT_FAMILIES,
        choices=(*FAMILIES, EVERY_FAMILY),
        help="which models' groups; a seed names one plan of each list of families",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
