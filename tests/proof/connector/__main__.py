"""``python -m tests.proof.connector``: the long run, and the run of one seed again."""

import logging
import sys
from collections import Counter

from tests.proof.long_run import compare, parser_of

from . import together
from .comparison import Comparison
from .scenario import Scenario

STEPS_PER_RUN = 400


def main() -> int:
    parser = parser_of("python -m tests.proof.connector", __doc__)
    parser.add_argument("--hooks", type=int, default=0, help="at least so many in all")
    parser.add_argument(
        "--together", action="store_true", help="check servers whose memories decide together"
    )
    parser.add_argument("--steps-per-run", type=int, default=STEPS_PER_RUN)
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)

    def run(seed: int, seen: Counter[str]) -> None:
        scenario = Scenario.draw(seed)
        comparison = Comparison(scenario)
        try:
            comparison.run(arguments.steps_per_run)
        finally:
            seen.update(comparison.seen)
            seen.update(f"runs: {what}" for what in ("all", *scenario.words()))

    def run_together(seed: int, seen: Counter[str]) -> None:
        seen.update(together.run(seed, arguments.steps_per_run))

    needed = {"step": arguments.steps, "hooks": arguments.hooks}
    if arguments.together:
        compared = "scheduler and GPU and CPU memory together"
        return compare(compared, arguments, run_together, needed=needed)
    return compare("offloading connector and kvoxide's", arguments, run, needed=needed)


if __name__ == "__main__":
    sys.exit(main())
