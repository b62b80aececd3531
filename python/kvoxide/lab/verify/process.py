"""Starts the process of a verification. It is a new one, so that no other code has changed vLLM in
it."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

MODULE: Final = "kvoxide.lab.verify"

VERIFIED: Final = 0
DIFFERS: Final = 1
NOT_VERIFIED: Final = 3
"""No answer is possible: the traffic does not fit this vLLM, or other code runs than vLLM's."""
INTERRUPTED: Final = 130


def verify(arguments: Sequence[str]) -> int:
    """Run ``python -m kvoxide.lab.verify`` with these arguments, and forward signals that end it.
    Return its exit code."""
    # The path leaves out the current folder, which may have a vllm that no server imports.
    process = subprocess.Popen([sys.executable, "-P", "-m", MODULE, *arguments])
    with _handed_on(process):
        code = process.wait()
    if code < 0:
        print(f"Not verified: signal {-code} ended the process.", file=sys.stderr)
        return INTERRUPTED if -code in _ENDING else NOT_VERIFIED
    return code


_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _handed_on(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    def hand_on(signum: int, _: Any) -> None:
        process.send_signal(signum)

    before = {signum: signal.signal(signum, hand_on) for signum in _ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
