"""Checks that nothing became slower: ``python -m benches.gate``.

It counts instructions of the core's hot paths under callgrind, and measures ratios to the installed
vLLM's manager. Both are compared with ``benches/baseline.json``. Calls of other parts of vLLM are
compared with bounds.

The exit status is 1 if something became slower than the margin allows, or if adaptive retention
needs too many more instructions than a policy that caches as many tails. ``--renew`` writes the
baseline instead.
"""

import argparse
import sys
from typing import Final

from kvoxide.lab.bench.layouts import LAYOUTS
from kvoxide.lab.bench.vllm_release import find_vllm

from . import baseline, counts, ratios
from .baseline import HOW_TO_RENEW, Section, Values
from .verdict import Line, compare, print_verdict

COUNTS_MARGIN: Final = 0.03
"""Counts do not vary. The margin is for intended changes elsewhere."""
ADAPTIVE_MARGIN: Final = 0.3
"""The share of instructions that adaptive retention may add to a policy that caches as many tails.
vLLM's default caches fewer, and needs fewer instructions for this reason."""
SESSIONS_MARGIN: Final = 0.1
"""The share of instructions that sessions may add to adaptive retention."""
RATIOS_MARGIN: Final = 0.18
"""More than the noise of the fastest of several runs, and well below 30 % slower."""
RETRIES: Final = 4
RUNS_OF_BASELINE: Final = 3


def check_counts(renew: bool) -> bool:
    """Return whether no hot path executes more instructions than its baseline allows."""
    missing = counts.missing_tool()
    if missing is not None:
        print(f"instructions are not counted: {missing} is not installed")
        return not renew
    tools = counts.tools()
    if renew:
        baseline.write("counts", Section(tools, counts.count()))
        return True
    before = baseline.read("counts")
    if (difference := before.difference(tools)) is not None:
        print(f"instructions are not counted: {difference}; {HOW_TO_RENEW} counts")
        return True
    values = counts.count()
    lines = compare(before.values, values, more_is_better=False)
    print_verdict("instructions of the core's hot paths", lines, COUNTS_MARGIN)
    beside = _adaptive_beside_every_tail(values)
    print_verdict("with adaptive retention", beside, ADAPTIVE_MARGIN, before="every tail")
    with_sessions = _sessions_beside_adaptive(values)
    print_verdict("with sessions", with_sessions, SESSIONS_MARGIN, before="adaptive")
    return not (
        any(line.is_bad(COUNTS_MARGIN) for line in lines)
        or any(line.is_bad(ADAPTIVE_MARGIN) for line in beside)
        or any(line.is_bad(SESSIONS_MARGIN) for line in with_sessions)
    )


def _adaptive_beside_every_tail(values: Values) -> list[Line]:
    adaptive = {
        layout.removesuffix(counts.ADAPTIVE): of
        for layout, of in values.items()
        if layout.endswith(counts.ADAPTIVE)
    }
    # Layouts without tails have no row of their own.
    every_tail = {
        layout: values.get(layout + counts.EVERY_TAIL, values.get(layout, {}))
        for layout in adaptive
    }
    return compare(every_tail, adaptive, more_is_better=False)


def _sessions_beside_adaptive(values: Values) -> list[Line]:
    with_sessions = {
        layout.removesuffix(counts.SESSIONS): of
        for layout, of in values.items()
        if layout.endswith(counts.SESSIONS)
    }
    adaptive = {layout: values[layout + counts.ADAPTIVE] for layout in with_sessions}
    return compare(adaptive, with_sessions, more_is_better=False)


def check_ratios(renew: bool) -> bool:
    """Return whether no row's ratio is further below its baseline than noise explains."""
    vllm = find_vllm()
    if vllm.version is None:
        print(f"ratios are not measured: no vLLM to compare with, {vllm.why_not}")
        return False
    tools = ratios.tools(vllm.version)
    if renew:
        found = ratios.measure_until(list(LAYOUTS), lambda _: list(LAYOUTS), RUNS_OF_BASELINE - 1)
        baseline.write("ratios", Section(tools, ratios.values_of(found)))
        return True
    before = baseline.read("ratios")
    if (difference := before.difference(tools)) is not None:
        print(f"ratios are not comparable: {difference}; {HOW_TO_RENEW}")
        return False

    def slow_layouts(values: Values) -> list[str]:
        lines = compare(before.values, values, more_is_better=True)
        return sorted({line.layout for line in lines if line.is_bad(RATIOS_MARGIN)})

    found = ratios.measure_until(list(before.values), slow_layouts, RETRIES)
    lines = compare(before.values, ratios.values_of(found), more_is_better=True)
    print_verdict(f"vLLM {vllm.version}'s time / kvoxide's", lines, RATIOS_MARGIN)
    return not any(line.is_bad(RATIOS_MARGIN) for line in lines)


def check_neighbours(renew: bool) -> bool:
    """Return whether no call of other parts of vLLM is slower with kvoxide than its bound
    allows."""
    from .neighbours.bounds import check

    return renew or check()


CHECKS: Final = {"counts": check_counts, "ratios": check_ratios, "neighbours": check_neighbours}


def main(arguments: list[str] | None = None) -> int:
    """Run the named checks, or all, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.gate", description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="{" + ",".join(CHECKS) + "}", default=[])
    parser.add_argument("--renew", action="store_true", help="write the baseline")
    given = parser.parse_args(arguments)
    unknown = set(given.checks) - CHECKS.keys()
    if unknown:
        parser.error(f"no check {', '.join(sorted(unknown))}; checks are {', '.join(CHECKS)}")
    results = [CHECKS[name](given.renew) for name in given.checks or CHECKS]
    if not all(results) and not given.renew:
        print(f"If this is meant to be: {HOW_TO_RENEW}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
