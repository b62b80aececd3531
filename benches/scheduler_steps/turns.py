"""The processes of both sides, which take turns phase by phase, so that other load hits both."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import zip_longest
from typing import Any, Final

from benches.scheduler_steps.phases import PHASES, READY, PhaseError, Step, phases_of
from benches.scheduler_steps.sizes import Sizes

MODES: Final = ("off", "require")
"""The values of ``KVOXIDE``, vLLM's side first."""
SIDE: Final = (sys.executable, "-m", "benches.scheduler_steps.side")
"""The command of one side, without the sizes."""


class SideProcess:
    """The process of one side."""

    def __init__(self, mode: str, sizes: Sizes) -> None:
        """Start the process with ``KVOXIDE=mode``."""
        self.mode = mode
        self._process = subprocess.Popen(
            [*SIDE, *sizes.arguments()],
            env=side_variables(mode, os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "SideProcess":
        """Return the process, which ends with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self._process.communicate()

    def await_start(self, name: str) -> None:
        """Wait until the side can play its first phase, which has this name."""
        self._read(name, READY["phase"])

    def play(self, name: str) -> list[Step]:
        """Play the next phase, whose name must be this, and return its steps."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("next\n")
            self._process.stdin.flush()
        return [Step(*step) for step in self._read(name, name)["steps"]]

    def _read(self, name: str, wanted: object) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise self._error(name, f"its process ended with status {status}, see above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._error(name, answer["error"])
        if answer["phase"] != wanted:
            raise self._error(name, f"{answer['phase']!r} came instead")
        return answer

    def _error(self, name: str, reason: str) -> PhaseError:
        text = f"phase '{PHASES[name].text}' did not happen with KVOXIDE={self.mode}: {reason}"
        return PhaseError(text)


def play_in_turns(sizes: Sizes) -> Iterator[tuple[str, tuple[list[Step], list[Step]]]]:
    """Yield each phase with the steps of vLLM's side and of kvoxide's. Raise an exception if a
    phase did not happen, or if the sides scheduled different tokens."""
    with ExitStack() as stack:
        sides = [stack.enter_context(SideProcess(mode, sizes)) for mode in MODES]
        names = phases_of(sizes.connector)
        for side in sides:
            side.await_start(names[0])
        for name in names:
            stock, native = (side.play(name) for side in sides)
            require_same_tokens(name, stock, native)
            yield name, (stock, native)


def require_same_tokens(name: str, stock: list[Step], native: list[Step]) -> None:
    """Raise an exception if the sides scheduled different tokens in a step of this phase."""
    for number, (one, other) in enumerate(zip_longest(stock, native), start=1):
        if one is None or other is None or one.tokens != other.tokens:
            raise PhaseError(
                f"phase '{PHASES[name].text}', step {number}: KVOXIDE=off and KVOXIDE=require"
                " scheduled different tokens; their times cannot be compared"
            )


def side_variables(mode: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return these variables with ``KVOXIDE=mode`` and no other setting of kvoxide's."""
    others = {name: value for name, value in variables.items() if not name.startswith("KVOXIDE")}
    return {
        **others,
        "KVOXIDE": mode,
        "KVOXIDE_HOST": mode,
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    }
