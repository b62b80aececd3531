"""``python -m tests.proof.planted``: how many calls a verification needs to see each fault."""

import argparse
import sys
import time

from kvoxide.vllm.verify.part import HarnessError
from kvoxide.vllm.verify.verification import Verification

from .fault import Fault
from .faults import FAULTS


def main() -> int:
    arguments = _parser().parse_args()
    unseen = []
    for name in arguments.faults or FAULTS:
        is_seen = _print_row(FAULTS[name], arguments.seed, arguments.seconds)
        unseen += [] if is_seen else [name]
    print(f"{len(arguments.faults or FAULTS)} faults, not seen: {', '.join(unseen) or 'none'}")
    return 1 if unseen else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.planted", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="by default all of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each")
    return parser


def _print_row(fault: Fault, seed: int, seconds: float) -> bool:
    run = Verification(seed)
    start = time.process_time()
    with fault.planted():
        try:
            found = run.run(seconds)
        except HarnessError as error:
            print(f"{fault.area:26} {fault.name:38} does not fit: {error}", flush=True)
            return False
    what = "not seen" if found is None else found.call
    seconds = time.process_time() - start
    row = f"{fault.area:26} {fault.name:38} {run.num_calls:>8,} {seconds:6.1f} s  {what:.70}"
    print(row, flush=True)
    return found is not None


if __name__ == "__main__":
    sys.exit(main())
