"""A long run that compares two schedulers: a seed after the other, until there were enough
steps."""

import argparse
import time
from collections import Counter
from collections.abc import Callable

from kvoxide.lab.verify.schedulers.twins import Difference
from kvoxide.vllm.environment.releases import installed_version


def parser_of(program: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of each long run."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=20_000, help="at least so many in all")
    parser.add_argument("--keep-going", action="store_true", help="print every difference")
    return parser


def compare(
    compared: str,
    arguments: argparse.Namespace,
    run: Callable[[int, Counter[str]], None],
    *,
    needed: dict[str, int],
) -> int:
    """Call ``run`` with one seed after the other until it has counted the ``needed`` events.
    Print what happened. Return the status of the program.

    ``run`` counts also before it raises :class:`Difference`.
    """
    seen: Counter[str] = Counter()
    start, num_differences = time.monotonic(), 0
    # Each seed has a step or more, unless all of them end at once.
    for seed in range(arguments.seed, arguments.seed + max(needed.values())):
        if all(seen[name] >= number for name, number in needed.items()):
            break
        try:
            run(seed, seen)
        except Difference as difference:
            print(f"seed {seed}, {difference}"[:4000])
            num_differences += 1
            if not arguments.keep_going:
                break
    for name, count in sorted(seen.items()):
        print(f"  {count:>12,}  {name}")
    print(
        f"vLLM {installed_version()}'s {compared}: {seen['step']:,} steps, "
        f"{num_differences} differences in {time.monotonic() - start:.0f} s"
    )
    return 1 if num_differences else 0
