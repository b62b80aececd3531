"""A Ray cluster that this process has joined: joining and leaving it, each within bounded time,
and noticing that it is gone."""

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc
import ray

from kvoxide.lab.replay.run.execution.interface import Incomplete
from kvoxide.lab.replay.run.execution.local import num_cores

_CLIENT: Final = "ray://"
# What Ray calls the address of a cluster that it starts.
_START: Final = "local"
_QUIET: Final[dict[str, Any]] = {"logging_level": logging.ERROR, "log_to_driver": False}
# To find out that no program listens there, or one that is no cluster.
_CONNECT_SECONDS: Final = 10.0
_LEAVE_SECONDS: Final = 5.0
# A cluster that did not answer for so long is taken for gone. Ray itself would end this process
# after a minute.
_SILENCE_SECONDS: Final = 10.0
_ASK_EVERY_SECONDS: Final = 1.0


class Cluster:
    """A cluster at ``host`` and ``port``, where it can be asked whether it is there."""

    def __init__(self, name: str, host: str, port: int) -> None:
        """A cluster that has just answered; ``name`` is for messages."""
        self.name = name
        self.num_cpus = _num_cpus()
        self._where = (host, port)
        self._asked = self._answered = time.monotonic()

    def require_presence(self) -> None:
        """Raise :class:`Incomplete` if the cluster did not answer for a while. To be called often;
        asks once in a while, and then counts its processors again, at least 1."""
        now = time.monotonic()
        if now - self._asked < _ASK_EVERY_SECONDS:
            return
        self._asked = now
        # Calls of Ray wait where no cluster answers.
        if _refusal(self._where, _ASK_EVERY_SECONDS) is None:
            self._answered = now
            self.num_cpus = _num_cpus()
        elif now - self._answered >= _SILENCE_SECONDS:
            raise Incomplete(f"{self.name} has not answered for {_SILENCE_SECONDS:.0f} s")


@contextmanager
def joined(address: str | None) -> Iterator[Cluster]:
    """Join the cluster at an address, and leave it when the block ends.

    Without an address, join the cluster at ``RAY_ADDRESS`` or the one that runs on this machine.
    If there is none, start one that ends with the block.

    Raises :class:`Incomplete` if it cannot be joined because no program answers, which takes
    about 20 seconds at most to find out.
    """
    # Nothing is reported to anybody outside.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address is not None and ":" in address:
        _require_answer(address)
    try:
        yield _join(address)
    finally:
        _leave()


def _join(address: str | None) -> Cluster:
    try:
        if address == _START:
            _start()
        elif address is not None:
            ray.init(address=address, **_QUIET)
        else:
            _find_or_start()
    except (RuntimeError, OSError, ValueError) as error:
        raise Incomplete(f"cannot join {_name(address)}: {error}") from error
    at = address if address is not None and ":" in address else None
    host, port = _host_and_port(at or ray.get_runtime_context().gcs_address)
    return Cluster(_name(address), host, port)


def _find_or_start() -> None:
    try:
        ray.init(address="auto", **_QUIET)
    except ConnectionError:
        _start()


def _start() -> None:
    ray.init(address=_START, num_cpus=num_cores(), include_dashboard=False, **_QUIET)


def _leave() -> None:
    """Leave within bounded time: Ray waits for a cluster that is gone, here and once more when
    Python ends."""
    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(_LEAVE_SECONDS)
    if thread.is_alive():
        atexit.unregister(ray.shutdown)


def _num_cpus() -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _require_answer(address: str) -> None:
    refusal = _refusal(_host_and_port(address), _CONNECT_SECONDS)
    if refusal is not None:
        raise Incomplete(f"no Ray cluster at {address}: {refusal}")
    if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
        _require_grpc(address)


def _require_grpc(address: str) -> None:
    """Raise :class:`Incomplete` unless a program answers that speaks gRPC, as Ray does.
    Ray itself would wait for minutes."""
    channel = grpc.insecure_channel(address.removeprefix(_CLIENT))
    try:
        grpc.channel_ready_future(channel).result(timeout=_CONNECT_SECONDS)
    except grpc.FutureTimeoutError:
        raise Incomplete(
            f"no Ray cluster answered at {address} within {_CONNECT_SECONDS:.0f} s"
        ) from None
    finally:
        channel.close()


def _refusal(where: tuple[str, int], timeout: float) -> OSError | None:
    """Why there is no connection; None if there is one."""
    try:
        socket.create_connection(where, timeout).close()
    except OSError as error:
        return error
    return None


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    return host.strip("[]"), int(port)


def _name(address: str | None) -> str:
    is_elsewhere = address is not None and ":" in address
    return f"the Ray cluster at {address}" if is_elsewhere else "the Ray cluster of this machine"
