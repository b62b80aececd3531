"""``python -m tests.proof.connector``: the long run, and the run of one seed again."""

import logging
import sys
from collections import Counter

from tests.proof.long_run import compare, parser_of

from .comparison import Comparison
from .scenario import Scenario

STEPS_PER_RUN = 400


def main() -> int:
    parser = parser_of("python -m tests.proof.connector", __doc__)
    parser.add_argument("--hooks", type=int, default=0, help="at least so many in all")
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

    needed = {"step": arguments.steps, "hooks": arguments.hooks}
    return compare("offloading connector and kvoxide's", arguments, run, needed=needed)


if __name__ == "__main__":
    sys.exit(main())
