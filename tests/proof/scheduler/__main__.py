"""``python -m tests.proof.scheduler``: the long run, and the repeated plan of one seed."""

import sys
from collections import Counter
from collections.abc import Sequence

from kvoxide.lab.verify.managers.scenarios import DEFAULT_FAMILIES, EVERY_FAMILY, FAMILIES
from kvoxide.lab.verify.schedulers.comparison import Comparison, Ended
from kvoxide.lab.verify.schedulers.plan import Plan, random_plan

from tests.proof.long_run import compare, parser_of

STEPS_PER_PLAN = 300


def main() -> int:
    parser = parser_of("python -m tests.proof.scheduler", __doc__)
    parser.add_argument(
        "--families",
        nargs="+",
        default=DEFAULT_FAMILIES,
        choices=(*FAMILIES, EVERY_FAMILY),
        help="which models' groups; a seed names one plan of each list of families",
    )
    arguments = parser.parse_args()
    num_steps = min(arguments.steps, STEPS_PER_PLAN)
    return compare(
        "scheduler with vLLM's manager and kvoxide's",
        arguments,
        lambda seed, seen: run(seed, arguments.families, num_steps, seen),
        needed={"step": arguments.steps},
    )


def run(seed: int, families: Sequence[str], num_steps: int, seen: Counter[str]) -> None:
    """Make steps of one plan, and count what happens.

    Raises :class:`Difference`.
    """
    plan = random_plan(seed, families)
    comparison = Comparison(plan)
    try:
        while comparison.num_steps < num_steps:
            comparison.run_step()
    except Ended:
        seen["plan ended by an exception"] += 1
    finally:
        seen.update(comparison.seen)
        seen.update(_words(plan))


def _words(plan: Plan) -> Counter[str]:
    words: Counter[str] = Counter({group.kind: 1 for group in plan.scenario.groups})
    words["plan"] += 1
    words["plan, asynchronous"] += plan.is_async
    words["plan with a connector"] += plan.connector
    words["plan with drafts"] += plan.num_spec_tokens > 0
    return words


if __name__ == "__main__":
    sys.exit(main())
