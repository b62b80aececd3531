"""A copy of the Rust workspace, in which errors are planted and tests run."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

from tests.testing.paths import ROOT

from .planted import Mutation, NamedTest

TIMEOUT_S: Final = 600

_BUILT: Final = shutil.ignore_patterns("target", "proptest-regressions")


class Outcome(Enum):
    """The result of one run of a test."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_COMPILED = "does not compile"
    NOT_FOUND = "there is no such test"
    TIMED_OUT = "does not end"


class Workspace:
    def __init__(self, folder: Path) -> None:
        """Copy the workspace of this checkout to a new folder."""
        self.folder = folder / "workspace"
        self._env = {
            **os.environ,
            "CARGO_TARGET_DIR": str(folder / "target"),
            "CARGO_PROFILE_DEV_DEBUG": "0",
            # An input on which one planted error failed must not be tried first with the next.
            "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
        }
        shutil.copytree(ROOT / "rust", self.folder / "rust", ignore=_BUILT)
        for name in ("Cargo.toml", "Cargo.lock"):
            shutil.copy(ROOT / name, self.folder)

    def text_of(self, mutation: Mutation) -> str:
        """Return the present text of the file that the error is for."""
        return (self.folder / mutation.file).read_text(encoding="utf-8")

    @contextmanager
    def planted(self, mutation: Mutation) -> Iterator[None]:
        """Plant an error until the block ends."""
        file = self.folder / mutation.file
        text = self.text_of(mutation)
        file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(text, encoding="utf-8")

    def run(self, test: NamedTest) -> Outcome:
        """Build and run one test."""
        binary = ["--lib"] if test.binary == "lib" else ["--test", test.binary]
        command = ["cargo", "test", "--locked", "--package", "kvoxide-core", *binary]
        build = subprocess.run(
            [*command, "--no-run"], cwd=self.folder, env=self._env, capture_output=True, check=False
        )
        if build.returncode:
            return Outcome.NOT_COMPILED
        return self._run_built([*command, "--", "--exact", test.name])

    def _run_built(self, command: list[str]) -> Outcome:
        # The process has a session of its own, because cargo's child may be what does not end.
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Outcome.TIMED_OUT
        if "running 1 test\n" not in output:
            return Outcome.NOT_FOUND
        return Outcome.FAILED if process.returncode else Outcome.PASSED
