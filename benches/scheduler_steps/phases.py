"""The phases of a run, and the times of one."""

from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, NamedTuple


@dataclass(frozen=True)
class Phase:
    """A phase of the run. Its steps do the same work if its ratio compares medians. If its steps
    differ, its ratio compares the longest."""

    text: str
    compares: Literal["median", "longest"] = "median"
    needs_connector: bool = False


PHASES: Final = {
    "decode": Phase("decode, before the prompt comes"),
    "chunk": Phase("prefill chunk"),
    "end": Phase("the prompt's request ends, and the step after", "longest"),
    "admission": Phase("a hit on the GPU is admitted"),
    "decode-next-to": Phase("decode next to the prompt"),
    "wait-miss": Phase("the prompt waits, no hit"),
    "wait-hit": Phase("the prompt waits, hit in CPU memory", needs_connector=True),
    "load": Phase("the prompt is loaded from CPU memory", "longest", needs_connector=True),
    "chunk-full": Phase("prefill chunk, CPU memory full", needs_connector=True),
}
READY: Final = {"phase": "ready", "steps": []}
"""The first answer of a side."""


def phases_of(connector: str) -> list[str]:
    """Return the names of the phases of a run with this connector."""
    return [
        name for name, phase in PHASES.items() if connector != "none" or not phase.needs_connector
    ]


class PhaseError(Exception):
    """A phase did not happen as intended."""


class Step(NamedTuple):
    """CPU time of one step in microseconds, and the scheduled tokens of each request."""

    microseconds: float
    tokens: dict[str, int]


@dataclass(frozen=True)
class Figures:
    """The times of one phase on one side, in microseconds."""

    num_steps: int
    median: float
    longest: float

    @classmethod
    def of(cls, steps: list[Step]) -> "Figures":
        """Return the figures of these steps."""
        times = [step.microseconds for step in steps]
        return cls(len(times), median(times), max(times))
