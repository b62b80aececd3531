"""Generators of served traffic with published statistics, and their results.

A family is one generator. If its answers come back in later prompts, it may have two workloads with
the same traffic. The lines of one have the answers' ids; the lines of its twin have none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.proof.retention.traffic import Recorded, Traffic

from .agents import best_of_n, coding_agents, rollouts, team_of_agents, tool_agents
from .chats import bounded_chat, chat, edited_chat, reasoning_chat, regenerated_chat
from .documents import completion, few_shot, long_documents, retrieval
from .mixtures import bursts, drifting_tenants, phases, scan_beside_hot_set

TWIN: Final = "-without-answers"

_GENERATORS: Final[tuple[Callable[[Traffic], None], ...]] = (
    best_of_n,
    bounded_chat,
    bursts,
    chat,
    coding_agents,
    completion,
    drifting_tenants,
    edited_chat,
    few_shot,
    long_documents,
    phases,
    reasoning_chat,
    regenerated_chat,
    retrieval,
    rollouts,
    scan_beside_hot_set,
    team_of_agents,
    tool_agents,
)
_WITH_TWIN: Final = (chat, coding_agents, edited_chat, regenerated_chat, rollouts, tool_agents)


@dataclass(frozen=True)
class Workload:
    """Traffic that can be generated for any seed."""

    name: str
    family: str
    generator: Callable[[Traffic], None]
    answers_return: bool

    def recorded(self, seed: int) -> Recorded:
        traffic = Traffic(self.family, seed, answers_return=self.answers_return)
        self.generator(traffic)
        return Recorded(tuple(traffic.lines()))


@dataclass(frozen=True)
class TraceFile:
    """Recorded traffic of other servers: the lines of a trace, with 16 tokens per id."""

    path: Path

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def family(self) -> str:
        return self.name

    def recorded(self, seed: int) -> Recorded:
        """Return the traffic, which is the same for every seed."""
        return Recorded(tuple(self.path.read_bytes().splitlines()))


@cache
def workloads() -> dict[str, Workload]:
    """Return all workloads by name, with each twin after its family."""
    found = {}
    for generator in _GENERATORS:
        family = generator.__name__.replace("_", "-")
        found[family] = Workload(family, family, generator, answers_return=True)
        if generator in _WITH_TWIN:
            twin = family + TWIN
            found[twin] = Workload(twin, family, generator, answers_return=False)
    return found
