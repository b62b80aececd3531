"""``python -m tests.proof.planted``: prints how many calls or steps it takes to find each fault."""

import argparse
import logging
import sys
import time

from .looks import FAULTS, LOOKS


def main() -> int:
    arguments = _parser().parse_args()
    logging.disable(logging.ERROR)
    names = arguments.faults or list(FAULTS)
    unseen = [name for name in names if not _print_row(name, arguments.seed, arguments.seconds)]
    print(f"{len(names)} faults, not seen: {', '.join(unseen) or 'none'}")
    return 1 if unseen else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.planted", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="by default all of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each")
    return parser


def _print_row(name: str, seed: int, seconds: float) -> bool:
    start = time.process_time()
    num_calls, what = LOOKS[name](FAULTS[name], seed, seconds)
    seconds = time.process_time() - start
    said = (what or "not seen").splitlines()[0]
    row = f"{FAULTS[name].area:26} {name:48} {num_calls:>8,} {seconds:6.1f} s  {said:.70}"
    print(row, flush=True)
    return what is not None


if __name__ == "__main__":
    sys.exit(main())
