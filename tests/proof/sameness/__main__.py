"""``python -m tests.proof.sameness``: the long run, and the replay of a printed difference."""

import argparse
import math
import sys
import time
from pathlib import Path

from kvoxide.lab.verify.managers.coverage import Coverage
from kvoxide.lab.verify.managers.driver import MakeDriver
from kvoxide.lab.verify.managers.runner import (
    CALLS_PER_SCENARIO,
    DifferenceFound,
    Reproduction,
    Sides,
    play_random,
    play_recorded,
    recording_from_json,
)
from kvoxide.lab.verify.managers.scenarios import DEFAULT_FAMILIES, EVERY_FAMILY, FAMILIES
from kvoxide.lab.verify.managers.shrink import shrink
from kvoxide.lab.verify.managers.sides import AdapterDriver, VllmDriver
from kvoxide.vllm.environment.releases import installed_version

from .sides import AdaptiveAdapterDriver, AdaptiveKvoxideDriver, KvoxideDriver

_ADAPTIVE = "adaptive"
_HOST = "host"
_TIERING = "tiering"


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.against == _HOST:
        # Some vLLM releases that can be compared have no host tier.
        from . import host

        return host.main(arguments)
    if arguments.against == _TIERING:
        from . import tiering

        return tiering.main(arguments)
    sides = _sides(arguments.against)
    if arguments.replay:
        return max(_replay(path, sides) for path in arguments.replay)
    num_scenarios = arguments.scenarios or max(1, arguments.calls // CALLS_PER_SCENARIO)
    seeds = range(arguments.seed, arguments.seed + num_scenarios)
    calls_per_scenario = math.ceil(arguments.calls / num_scenarios)
    return _run(seeds, calls_per_scenario, sides, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sameness", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first scenario")
    parser.add_argument("--calls", type=int, default=200_000, help="calls in all")
    parser.add_argument("--scenarios", type=int, help="configurations to spread them over")
    parser.add_argument("--keep-going", action="store_true", help="print every difference")
    parser.add_argument(
        "--calls-per-check",
        type=int,
        help="compare the whole state after so many calls, instead of as often as the pool's size "
        "allows; results are compared after every call",
    )
    parser.add_argument(
        "--families",
        nargs="+",
        default=DEFAULT_FAMILIES,
        choices=(*FAMILIES, EVERY_FAMILY),
        help="which models' groups; a seed names one scenario of each list of families",
    )
    parser.add_argument(
        "--replay", type=Path, nargs="+", metavar="FILE", help="play printed differences"
    )
    parser.add_argument(
        "--against",
        default="kvoxide",
        choices=("kvoxide", "adapter", "vllm", _ADAPTIVE, _HOST, _TIERING),
        help="what vLLM is compared with: kvoxide, its adapter for vLLM, or vLLM itself; adaptive "
        "compares kvoxide and its adapter, both with adaptive retention, host the host tiers, "
        "tiering vLLM's tiers over each as the primary one",
    )
    return parser


def _sides(name: str) -> Sides:
    if name == _ADAPTIVE:
        return Sides(AdaptiveAdapterDriver, AdaptiveKvoxideDriver)
    others: dict[str, MakeDriver] = {
        "kvoxide": KvoxideDriver,
        "adapter": AdapterDriver,
        "vllm": VllmDriver,
    }
    return Sides(VllmDriver, others[name])


def _run(seeds: range, calls_per_scenario: int, sides: Sides, arguments: argparse.Namespace) -> int:
    coverage = Coverage()
    num_differences = 0
    start = time.monotonic()
    for seed in seeds:
        try:
            calls_per_check = arguments.calls_per_check
            families = arguments.families
            coverage.add(play_random(seed, sides, calls_per_scenario, calls_per_check, families))
        except DifferenceFound as found:
            print(f"seed {seed}: {found}; shrinking", file=sys.stderr)
            _print_difference(shrink(found.reproduction, sides))
            num_differences += 1
            if not arguments.keep_going:
                return 1
        _show_progress(seed - seeds.start + 1, len(seeds), coverage, start)
    print(f"vLLM {installed_version()} and {arguments.against}: {coverage.report()}")
    print(f"\n{num_differences} differences in {time.monotonic() - start:.0f} s")
    return 1 if num_differences else 0


def _show_progress(done: int, total: int, coverage: Coverage, start: float) -> None:
    if not sys.stderr.isatty() and done % 500:
        return
    rate = coverage.num_calls / (time.monotonic() - start)
    line = f"{done}/{total} scenarios, {coverage.num_calls:,} calls, {rate:,.0f} calls/s"
    print(line, end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr)


def _replay(path: Path, sides: Sides) -> int:
    scenario, operations = recording_from_json(path.read_text())
    difference = play_recorded(scenario, operations, sides)
    if difference is None:
        print(f"{path}: no difference with vLLM {installed_version()}")
        return 0
    _print_difference(Reproduction(scenario, tuple(operations), difference))
    return 1


def _print_difference(reproduction: Reproduction) -> None:
    print(reproduction.to_json())


if __name__ == "__main__":
    sys.exit(main())
