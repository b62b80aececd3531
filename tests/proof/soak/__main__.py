"""``python -m tests.proof.soak``: prints the memory of the process as it serves."""

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.requests % arguments.every or arguments.requests < 2 * arguments.every:
        parser.error("--requests must be a multiple of --every, and twice it at least")
    if arguments.what == "engine":
        from . import engine_soak

        return engine_soak.run(
            arguments.requests,
            arguments.every,
            arguments.seed,
            arguments.kvoxide,
            arguments.json,
            steps_between_resets=arguments.steps_between_resets,
        )
    from . import manager_soak

    return manager_soak.run(arguments.requests, arguments.every, arguments.seed, arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.soak", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    manager = commands.add_parser("manager", help="through kvoxide's manager for vLLM")
    _add_options(manager, requests=10_000_000, every=1_000_000)
    engine = commands.add_parser("engine", help="through vLLM's engine on the CPU")
    _add_options(engine, requests=1_000_000, every=100_000)
    engine.add_argument(
        "--kvoxide", default="require", choices=("require", "off"), help="whose manager"
    )
    engine.add_argument("--steps-between-resets", type=int, default=50, metavar="STEPS")
    return parser


def _add_options(parser: argparse.ArgumentParser, requests: int, every: int) -> None:
    parser.add_argument("--requests", type=int, default=requests, help="requests in all")
    parser.add_argument("--every", type=int, default=every, help="requests between two reports")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")


if __name__ == "__main__":
    sys.exit(main())
