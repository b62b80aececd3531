"""For all tests: the servers of preloaded processes last as long as the run."""

from contextlib import ExitStack

import pytest

from tests.testing.preloaded import folder_for_servers


def pytest_configure(config: pytest.Config) -> None:
    """Processes of pytest-xdist use the servers of the process that started them."""
    if not hasattr(config, "workerinput"):
        stack = ExitStack()
        stack.enter_context(folder_for_servers())
        config.add_cleanup(stack.close)
