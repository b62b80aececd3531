"""The cells that are judged: workloads, seeds, presets and pool sizes, in two halves."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .workloads import TraceFile, Workload, workloads

PRESETS: Final = ("llama", "gpt-oss", "gemma-3", "qwen3-next", "deepseek-v4")
PERCENTS: Final = (12, 30, 65)  # pool sizes

# A pool must have this many times the most blocks that are in use while nothing is evicted.
ROOM: Final = 1.5


class Whole(Enum):
    """Pool sizes are a percentage of one of these."""

    CACHED = "cached"
    """All blocks of all groups that a pool without evictions holds."""
    DISTINCT = "distinct"
    """The blocks of the distinct tokens, as if only one group had blocks. Windows and states then
    have little room."""


TUNING_SEEDS: Final = (1, 2)
HELD_BACK_SEED: Final = 3


class Half(Enum):
    """A half of the cells. Constants are chosen on the tuning half: every other family in the order
    of names, with seeds 1 and 2. Their effect is shown on the half held back, which is everything
    else: by default every family with seed 3. A twin is in the half of its family."""

    TUNING = "tuning"
    HELD_BACK = "held-back"

    @classmethod
    def of(cls, workload: Workload | TraceFile, seed: int) -> "Half":
        families = sorted({workload.family for workload in workloads().values()})
        is_tuning = workload.family in families[::2] and seed in TUNING_SEEDS
        return cls.TUNING if is_tuning else cls.HELD_BACK


@dataclass(frozen=True)
class Traffics:
    """One workload with one seed, which the cells of all presets and sizes share."""

    workload: Workload | TraceFile
    seed: int

    @property
    def half(self) -> Half:
        return Half.of(self.workload, self.seed)


def chosen(
    halves: Iterable[Half], names: Sequence[str] = (), seeds: Sequence[int] = ()
) -> Iterator[Traffics]:
    """Yield the traffics of the halves: all workloads without names, and the default seeds without
    seeds."""
    for workload in workloads().values():
        if names and workload.name not in names:
            continue
        for seed in seeds or (*TUNING_SEEDS, HELD_BACK_SEED):
            traffic = Traffics(workload, seed)
            is_default = traffic.half is Half.TUNING or seed == HELD_BACK_SEED
            if traffic.half in halves and (seeds or is_default):
                yield traffic


def pool_size(num_blocks: int, percent: int) -> int:
    return num_blocks * percent // 100


def has_room(blocks: int, most_used_blocks: int) -> bool:
    """Return whether a pool is large enough for the requests that run. Smaller pools are left
    out."""
    return blocks >= ROOM * most_used_blocks
