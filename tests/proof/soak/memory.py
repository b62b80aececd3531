"""Measures what a process holds after a number of requests, and decides whether it is flat."""

import ctypes
import gc
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from resource import getpagesize
from typing import Any

# Growth between the first and the last report that counts as none, as a share of the first.
TOLERANCE = 0.01

_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Report:
    """The process after ``requests`` requests. ``seconds`` are since the start."""

    requests: int
    rss: int
    seconds: float

    def line(self) -> str:
        return f"{self.requests:>12,} requests {self.rss:>15,} bytes {self.seconds:>8.0f} s"


@dataclass
class Soak:
    """One run: its reports, and how often it did each thing that it is meant to do."""

    name: str
    seed: int
    versions: dict[str, str]
    reports: list[Report] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)

    def report(self, requests: int) -> None:
        seconds = time.monotonic() - self.started
        self.reports.append(Report(requests, resident_bytes(), seconds))
        print(self.reports[-1].line(), flush=True)

    def failures(self, wanted: Sequence[str], unwanted: Sequence[str] = ()) -> list[str]:
        """Return the reasons why the run does not pass, empty if it does."""
        failures = [f"{name}: never happened" for name in wanted if not self.counters[name]]
        failures += [f"{name}: {self.counters[name]}" for name in unwanted if self.counters[name]]
        if self.growth() > TOLERANCE:
            first, last = self.reports[0], self.reports[-1]
            failures.append(
                f"grew by {self.growth():.2%}, {self.bytes_per_request():.1f} bytes a request, "
                f"between {first.requests:,} and {last.requests:,} requests"
            )
        return failures

    def growth(self) -> float:
        return self.reports[-1].rss / self.reports[0].rss - 1

    def bytes_per_request(self) -> float:
        first, last = self.reports[0], self.reports[-1]
        return (last.rss - first.rss) / max(1, last.requests - first.requests)

    def finish(self, failures: Sequence[str], file: Path | None) -> int:
        """Print the rest, write the file, and return the exit status."""
        for name, count in sorted(self.counters.items()):
            print(f"{count:>15,} {name}")
        print(f"growth {self.growth():+.3%}, {self.bytes_per_request():+.3f} bytes a request")
        print("\n".join(failures) or "passed")
        if file:
            file.write_text(json.dumps(self._to_json(failures), indent=2) + "\n")
        return 1 if failures else 0

    def _to_json(self, failures: Sequence[str]) -> dict[str, Any]:
        return {
            "name": self.name,
            "seed": self.seed,
            "versions": self.versions,
            "reports": [asdict(report) for report in self.reports],
            "counters": dict(self.counters),
            "growth": self.growth(),
            "failures": list(failures),
        }


def resident_bytes() -> int:
    """Return what the process holds after garbage is collected and free memory is returned."""
    gc.collect()
    _libc.malloc_trim(0)
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * getpagesize()
