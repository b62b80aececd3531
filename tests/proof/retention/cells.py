"""The cells that are judged: workloads, seeds, presets, pools and loops, in two halves."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .workloads import TraceFile, Workload, workloads

PRESETS: Final = (
    "llama",
    "gpt-oss",
    "gemma-3",
    "deepseek-v4",
    "deepseek-v4.1",
    "qwen3-next",
    "nemotron-h",
    "kimi-linear",
)
SHARES: Final = (
    10,
    30,
    60,
    90,
)  # of the hits of a pool without evictions, in %, which the bound has
NEIGHBOURS: Final = (0.9, 1.0, 1.1)  # sizes as multiples of a chosen pool
TUNING_SEEDS: Final = (1, 2)
HELD_BACK_SEED: Final = 3


class Loop(Enum):
    """When the next turn of a session arrives."""

    CLOSED = "closed"
    """Its delay after the answer before it, as with people and agents."""
    OPEN = "open"
    """At a time that does not depend on the answer."""


class Half(Enum):
    """A half of the cells. Constants are chosen on the tuning half: every other workload in the
    order of names, with seeds 1 and 2. Their effect is shown on the half held back, which is
    everything else: by default every workload with seed 3."""

    TUNING = "tuning"
    HELD_BACK = "held-back"

    @classmethod
    def of(cls, workload: Workload | TraceFile, seed: int) -> "Half":
        is_tuning = workload.name in sorted(workloads())[::2] and seed in TUNING_SEEDS
        return cls.TUNING if is_tuning else cls.HELD_BACK


@dataclass(frozen=True)
class Traffics:
    """One workload with one seed, which the cells of all presets, pools and loops share."""

    workload: Workload | TraceFile
    seed: int

    @property
    def half(self) -> Half:
        return Half.of(self.workload, self.seed)


def chosen(
    halves: Iterable[Half],
    names: Sequence[str] = (),
    seeds: Sequence[int] = (),
    among: Mapping[str, Workload] | None = None,
) -> Iterator[Traffics]:
    """Yield the traffics of the halves: all workloads without names, and the default seeds without
    seeds. ``among`` are the workloads, by default :func:`~.workloads.workloads`."""
    for workload in (workloads() if among is None else among).values():
        if names and workload.name not in names:
            continue
        for seed in seeds or (*TUNING_SEEDS, HELD_BACK_SEED):
            traffic = Traffics(workload, seed)
            is_default = traffic.half is Half.TUNING or seed == HELD_BACK_SEED
            if traffic.half in halves and (seeds or is_default):
                yield traffic
