"""Tests of threads and processes that share a manager. Each call raises an error or has its turn,
and the state is right."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from kvoxide import BlockHasher, BusyError, Policy, Request

from tests.testing.small import admit, decode, full, make_manager, make_request, window

NUM_THREADS = 8
NUM_REQUESTS = 150


@pytest.fixture
def many_switches() -> Any:
    """Make threads take turns after every few instructions of Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def retried(call: Callable[..., Any], *args: Any) -> Any:
    while True:
        try:
            return call(*args)
        except BusyError:
            continue


def serve_some(manager: Any, thread: int, seed: int) -> None:
    """Serve requests of one thread while other threads serve theirs."""
    rng = Random(seed * 100 + thread)
    hasher = BlockHasher(4)
    for number in range(NUM_REQUESTS):
        tokens = list(range(rng.randrange(3) * 100, rng.randrange(1, 60) + 200))
        request = Request(f"{thread}-{number}", tokens, block_hasher=hasher)
        num_new = rng.randrange(1, len(tokens) + 1)
        if retried(manager.allocate_slots, request, num_new) is not None:
            request.num_computed_tokens = num_new
            retried(manager.get_block_ids, request.request_id)
            retried(manager.free, request)
        retried(manager.evict_blocks, [rng.randrange(1, 200)])
        retried(manager.take_events)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("many_switches")
def test_threads_that_hammer_one_manager(seed: int) -> None:
    manager = make_manager(
        full(4),
        window(4, 8),
        num_blocks=200,
        policy=Policy(pin_min_drop_size=2),
        enable_kv_cache_events=True,
    )
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            serve_some(manager, thread, seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[i]) for i in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert failures == []
    manager.check_invariants()
    assert manager.usage == 0.0
    assert manager.reset_prefix_cache()


def in_child(work: Callable[[], None]) -> int:
    """Return the exit code of a forked process that does ``work``."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_manager_of_its_own() -> None:
    manager = make_manager(full(4), window(4, 8))
    running = make_request(manager, "running", range(30))
    admit(manager, running)
    before = manager.state_digest()

    def work() -> None:
        assert manager.state_digest() == before
        decode(manager, running, range(100, 120))
        manager.free(running)
        admit(manager, make_request(manager, "another", range(50)))
        admit(make_manager(full(4)), make_request(manager, "elsewhere", range(50)))
        manager.check_invariants()
        assert manager.state_digest() != before

    assert in_child(work) == 0
    assert manager.state_digest() == before
    decode(manager, running, range(5))
    manager.check_invariants()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_that_fails_is_seen() -> None:
    def work() -> None:
        raise AssertionError

    assert in_child(work) == 1


WITHOUT_GIL = """
import sys
sys._is_gil_enabled = lambda: {enabled}
import kvoxide
print(kvoxide.KVCacheManager.__name__)
"""


@pytest.mark.parametrize("enabled", [True, False])
def test_python_without_the_gil_is_refused(enabled: bool) -> None:
    script = WITHOUT_GIL.format(enabled=enabled)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    if enabled:
        assert done.stdout == "KVCacheManager\n"
    else:
        assert "ImportError" in done.stderr
        assert "this Python runs without the GIL, which kvoxide needs" in done.stderr
