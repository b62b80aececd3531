"""Set-up for all tests: the servers of preloaded processes, and how the processes of pytest-xdist
share the tests."""

import gc
import os
from contextlib import ExitStack
from typing import Any

import pytest

from tests.testing.preloaded import folder_for_servers


def pytest_configure(config: pytest.Config) -> None:
    """Start the folder of the servers, which last as long as the run and serve all of its
    processes. Only tests that say so may ask vLLM."""
    os.environ["KVOXIDE_ASK_VLLM"] = "0"
    # The collector would look through everything that the test modules import, again and again.
    gc.disable()
    if not is_shared(config):
        stack = ExitStack()
        stack.enter_context(folder_for_servers())
        config.add_cleanup(stack.close)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="the tests marked long, which other runs leave out"
    )
    parser.addoption("--with-long", action="store_true", help="all tests, also those marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
    if is_shared(config):
        from tests.testing.parallel import place

        items.sort(key=lambda item: place(item.nodeid))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--with-long"):
        return
    wanted: bool = config.getoption("--long")
    left_out = [item for item in items if (item.get_closest_marker("long") is not None) != wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.testing.parallel import Scheduler

    config.option.loadscopereorder = False
    return Scheduler(config, log)


def is_shared(config: pytest.Config) -> bool:
    """Return whether this process runs some of the tests for another process."""
    return hasattr(config, "workerinput")
