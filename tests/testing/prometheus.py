"""Runs Prometheus over pages of metrics, and asks it.

``KVOXIDE_PROMETHEUS`` names the folder with its programs. ``tests/run.sh`` fetches them.
"""

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

FOLDER: Final = "KVOXIDE_PROMETHEUS"
INTERVAL: Final = 0.5
DEADLINE: Final = 30

T = TypeVar("T")

Page: TypeAlias = Callable[[int], str | None]
"""Returns the text for the scrape with this number, from 0 on, or None for an error."""

Sample: TypeAlias = dict[str, str]
"""The labels of a sample."""


def program(name: str) -> Path:
    """Return the path of ``prometheus`` or ``promtool``, or skip the test if there is none."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        pytest.skip(f"no Prometheus: tests/run.sh fetches it, or {FOLDER} names its folder")
    return Path(folder) / name


def check(*arguments: object) -> str:
    """Run promtool, which must succeed, and return its output."""
    command = [str(program("promtool")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Job:
    """A target with a page, and its labels."""

    page: Page
    labels: Mapping[str, str]


class Pages(ThreadingHTTPServer):
    """Serves the page of each job at the job's name."""

    daemon_threads = True

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs = jobs
        self.scrapes = dict.fromkeys(jobs, 0)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def next_text(self, name: str) -> str | None:
        number = self.scrapes[name]
        self.scrapes[name] += 1
        return self.jobs[name].page(number)


class _Handler(BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:
        text = self.server.next_text(self.path.removeprefix("/"))
        self.send_response(500 if text is None else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    address: str
    pages: Pages

    def query(self, expression: str) -> list[Sample]:
        """Return the labels of each sample of the result. Raise for an invalid expression."""
        answer = self._get("query", query=expression)
        return [sample["metric"] for sample in answer["result"]]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the pending and firing alerts, with their annotations."""
        return list(self._get("alerts")["alerts"])

    def wait_for(self, read: Callable[[], T], expected: T) -> None:
        """Wait until ``read`` returns the expected value. A scrape can fail on a busy machine."""
        deadline = time.monotonic() + DEADLINE
        while (found := read()) != expected and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found == expected

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.address}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except URLError:
            return False

    def _get(self, name: str, **values: str) -> Any:
        address = f"{self.address}/api/v1/{name}"
        try:
            with urlopen(address, urlencode(values).encode() if values else None) as response:
                return json.load(response)["data"]
        except URLError as error:
            read = getattr(error, "read", lambda: b"")
            raise AssertionError(f"{values}: {error}: {read().decode()}") from error


@contextmanager
def running(
    folder: Path, jobs: Mapping[str, Job], *, rules: Path, history: str = ""
) -> Iterator[Prometheus]:
    """Run Prometheus until the block ends. It begins after three scrapes of each job.

    ``history`` has earlier samples in OpenMetrics, with times.
    """
    pages = Pages(jobs)
    port = _free_port()
    (folder / "prometheus.yml").write_text(json.dumps(_config(pages, rules)), encoding="utf-8")
    if history:
        (folder / "history.om").write_text(history, encoding="utf-8")
        check("tsdb", "create-blocks-from", "openmetrics", folder / "history.om", folder / "data")
    command = [
        str(program("prometheus")),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as it,
    ):
        try:
            started = Prometheus(f"http://127.0.0.1:{port}", pages)
            started.wait_for(started.is_ready, True)
            started.wait_for(lambda: min(pages.scrapes.values()) > 3, True)
            yield started
        finally:
            it.kill()
            pages.shutdown()
            pages.server_close()


def _free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return int(it.getsockname()[1])


def _config(pages: Pages, rules: Path) -> dict[str, Any]:
    """Return a configuration. As JSON it is valid YAML too."""
    interval = f"{INTERVAL * 1000:.0f}ms"
    target = f"127.0.0.1:{pages.server_port}"
    return {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": interval,
        },
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": name,
                "metrics_path": f"/{name}",
                "static_configs": [{"targets": [target], "labels": dict(job.labels)}],
            }
            for name, job in pages.jobs.items()
        ],
    }


_TYPE: Final = re.compile(r"^# TYPE (\S+) (counter|histogram)$", re.MULTILINE)
_SAMPLE: Final = re.compile(r"^([\w:]+)(\{.*\})? (\S+)$", re.MULTILINE)
_ENDINGS: Final = ("", "_bucket", "_sum", "_count")


def grown(text: str, scrape: int) -> str:
    """Return a page as it is some scrapes later. Each scrape adds the first one's counts again."""
    growing = {name + ending for name, _ in _TYPE.findall(text) for ending in _ENDINGS}

    def later(match: re.Match[str]) -> str:
        factor = scrape + 1 if match[1] in growing else 1
        return _line(match, float(match[3]) * factor)

    return _SAMPLE.sub(later, text)


def with_values(text: str, values: Mapping[str, float]) -> str:
    """Return a page in which samples have other values.

    A key is a name, with or without labels, such as ``up{job="a"}``. It must match a sample.
    """
    unused = set(values)

    def changed(match: re.Match[str]) -> str:
        for key, value in values.items():
            if _matches(match, key):
                unused.discard(key)
                return _line(match, value)
        return match[0]

    text = _SAMPLE.sub(changed, text)
    assert unused == set()
    return text


def _line(match: re.Match[str], value: float) -> str:
    return f"{match[1]}{match[2] or ''} {value!r}"


def _matches(match: re.Match[str], key: str) -> bool:
    name, _, labels = key.partition("{")
    needed = filter(None, labels.rstrip("}").split(","))
    return match[1] == name and all(label in (match[2] or "") for label in needed)
