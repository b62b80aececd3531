"""For all tests: servers of preloaded processes, and how those of pytest-xdist share the tests."""

from contextlib import ExitStack
from typing import Any

import pytest

from tests.testing.preloaded import folder_for_servers


def pytest_configure(config: pytest.Config) -> None:
    """The servers last as long as the run, and serve all of its processes."""
    if not is_shared(config):
        stack = ExitStack()
        stack.enter_context(folder_for_servers())
        config.add_cleanup(stack.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_shared(config):
        from tests.testing.parallel import place

        items.sort(key=lambda item: place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.testing.parallel import Scheduler

    config.option.loadscopereorder = False
    return Scheduler(config, log)


def is_shared(config: pytest.Config) -> bool:
    """Whether this process runs some of the tests for another one."""
    return hasattr(config, "workerinput")
