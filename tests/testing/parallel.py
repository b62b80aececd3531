"""Which tests go together where several processes of pytest-xdist share them, and in what order."""

from typing import Final

from xdist.scheduler import LoadScopeScheduling

# What takes long comes first, so that the processes end at about the same time.
IN_ORDER: Final = (
    "tests/engine/",
    "tests/proof/",
    "tests/package/test_page_in_browser.py",
    "tests/vllm/",
    "tests/package/",
)
# Tests of a file that one process runs, one after the other: they are short, share what is made
# once for all of them, or listen on ports.
TOGETHER: Final = (
    "tests/package/",
    "tests/vllm/test_bad_input.py",
    "tests/vllm/test_recognition.py",
    "tests/engine/test_http.py",
    "tests/engine/test_adaptive_server.py",
)


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """A process takes the next test that is left, or the next file of those."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.split("::")[0] if nodeid.startswith(TOGETHER) else nodeid


def place(nodeid: str) -> int:
    """Where in the order a test comes."""
    return next(at for at, start in enumerate(IN_ORDER) if nodeid.startswith(start))
