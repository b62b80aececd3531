"""Generators of served traffic with published statistics, and their results. The module of a
generator is the kind of its traffic."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.proof.retention.traffic import Recorded, Traffic

from .agents import team_of_agents, tool_agents
from .chats import bounded_chat, chat, edited_chat, reasoning_chat, regenerated_chat
from .coding import (
    abandoned_agents,
    agents_with_parallel_tools,
    agents_with_subagents,
    coding_agents,
    compressing_agents,
)
from .documents import completion, few_shot, long_documents, retrieval
from .mixtures import bursts, drifting_tenants, phases, scan_beside_hot_set
from .rollouts import best_of_n, rollouts

_GENERATORS: Final[tuple[Callable[[Traffic], None], ...]] = (
    abandoned_agents,
    agents_with_parallel_tools,
    agents_with_subagents,
    best_of_n,
    bounded_chat,
    bursts,
    chat,
    coding_agents,
    completion,
    compressing_agents,
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


@dataclass(frozen=True)
class Workload:
    """Traffic that can be generated for any seed."""

    name: str
    generator: Callable[[Traffic], None]

    @property
    def kind(self) -> str:
        return self.generator.__module__.rpartition(".")[2]

    def recorded(self, seed: int) -> Recorded:
        traffic = Traffic(self.name, seed)
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
    def kind(self) -> str:
        return "file"

    def recorded(self, seed: int) -> Recorded:
        """Return the traffic, which is the same for every seed."""
        return Recorded(tuple(self.path.read_bytes().splitlines()), format=None)


@cache
def workloads() -> dict[str, Workload]:
    """Return all workloads by name."""
    names = [generator.__name__.replace("_", "-") for generator in _GENERATORS]
    pairs = zip(names, _GENERATORS, strict=True)
    return {name: Workload(name, generator) for name, generator in pairs}
