"""Decides which tests run together, and in what order, when several processes of pytest-xdist share
them."""

from typing import Final

from xdist.scheduler import LoadScopeScheduling

# The tests that need no vLLM come first: they are quick, and find most errors. Then the longest, so
# that the processes end at about the same time. A process is given its next tests before it needs
# them, so the last ones have to be short.
IN_ORDER: Final = (
    "tests/package/",
    "tests/engine/",
    "tests/vllm/test_in_vllm.py",
    "tests/vllm/models/test_from_vllm.py",
    "tests/vllm/test_",
    "tests/proof/soak/",
    "tests/proof/",
    "tests/vllm/",
)
# Files whose tests one process runs, one after the other. They are short, share expensive set-up,
# or listen on ports.
TOGETHER: Final = (
    "tests/package/",
    "tests/vllm/test_bad_input.py",
    "tests/vllm/test_recognition.py",
    "tests/engine/test_http.py",
    "tests/engine/test_adaptive_server.py",
    "tests/engine/test_examples.py",
)


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """A process takes the next test that is left, or the next of these files."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.split("::")[0] if nodeid.startswith(TOGETHER) else nodeid


def place(nodeid: str) -> int:
    """Return the position of a test in the order."""
    return next(at for at, start in enumerate(IN_ORDER) if nodeid.startswith(start))
