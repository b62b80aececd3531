"""``python -m tests.proof.mutations``: plants each error of the list, and runs its test."""

import argparse
import sys
import tempfile
from pathlib import Path

from .planted import Mutation, mutations
from .workspace import Outcome, Workspace


def main() -> int:
    chosen = [mutation for mutation in mutations() if _arguments().only in mutation.about]
    with tempfile.TemporaryDirectory(prefix="kvoxide-mutations-") as folder:
        workspace = Workspace(Path(folder))
        if not (_can_be_planted(workspace, chosen) and _passes_unchanged(workspace, chosen)):
            return 1
        num_caught = sum(_is_caught(workspace, mutation) for mutation in chosen)
    print(f"{num_caught} of {len(chosen)} planted errors were caught")
    return 0 if num_caught == len(chosen) > 0 else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutations", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="errors that are about this")
    return parser.parse_args()


def _can_be_planted(workspace: Workspace, chosen: list[Mutation]) -> bool:
    wrong = [mutation for mutation in chosen if not mutation.fits(workspace.text_of(mutation))]
    for mutation in wrong:
        print(f"not just once in {mutation.file}: {mutation.old}")
    return not wrong


def _passes_unchanged(workspace: Workspace, chosen: list[Mutation]) -> bool:
    """Return whether the tests pass without an error. A test that fails anyway catches nothing."""
    outcomes = {test: workspace.run(test) for test in {mutation.test for mutation in chosen}}
    wrong = {test: got for test, got in outcomes.items() if got is not Outcome.PASSED}
    for test, outcome in wrong.items():
        print(f"without any planted error: {test.binary} {test.name}: {outcome.value}")
    return not wrong


def _is_caught(workspace: Workspace, mutation: Mutation) -> bool:
    with workspace.planted(mutation):
        outcome = workspace.run(mutation.test)
    is_caught = outcome is Outcome.FAILED
    verdict = "caught" if is_caught else f"NOT CAUGHT ({outcome.value})"
    test = f"{mutation.test.binary} {mutation.test.name}"
    print(f"{verdict}: {mutation.about}\n    {mutation.file}, by {test}", flush=True)
    return is_caught


if __name__ == "__main__":
    sys.exit(main())
