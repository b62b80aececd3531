"""Judges cells: plays all variants in both tiers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvoxide.lab.replay.input import preset_groups

from tests.proof.retention.cells import Traffics
from tests.proof.retention.judge import in_order
from tests.proof.retention.known import KnownResults

from .playing import Memory, PlayedTiers, TieredTraffic
from .sizes import SIZES, Size
from .variants import VARIANTS, Variant
from .workloads import COPIES, on_one_server

LEAST_BLOCKS: Final = 2  # the null block and one block


@dataclass(frozen=True)
class Cell:
    """One workload, seed, preset and size, and the results of all variants by name."""

    workload: str
    kind: str
    seed: int
    half: str
    preset: str
    size: str
    memory: Memory
    runs: dict[str, PlayedTiers]

    @classmethod
    def of(cls, record: dict[str, Any]) -> "Cell":
        """Return the cell that ``dataclasses.asdict`` gave."""
        runs = {name: PlayedTiers(**run) for name, run in record["runs"].items()}
        return cls(**record | {"memory": Memory(**record["memory"]), "runs": runs})

    def __str__(self) -> str:
        return f"{self.workload}, seed {self.seed}, {self.preset}, {self.size}"

    def share(self, variant: Variant) -> float:
        """Return the hit share of a variant in %, in both tiers."""
        return self.runs[variant.name].hit_share


@dataclass
class Judge:
    """Plays cells. A cell in which any run rejects a request is left out."""

    known: KnownResults[PlayedTiers]
    presets: Sequence[str]
    gpu_build: str
    variants: Sequence[Variant] = VARIANTS
    sizes: Sequence[Size] = SIZES
    copies: int = COPIES

    def cells(self, traffics: Sequence[Traffics], jobs: int) -> Iterator[Cell]:
        """Yield the cells of all traffics, in order, as they are done."""
        for cells in in_order(self._cells_of, traffics, jobs):
            yield from cells

    def _cells_of(self, traffic: Traffics) -> list[Cell]:
        recorded = on_one_server(traffic, self.copies)
        tiered = TieredTraffic(self.known, recorded, self.gpu_build)
        places = [(preset, size) for preset in self.presets for size in self.sizes]
        cells = [self._cell(traffic, tiered, *place) for place in places]
        return [cell for cell in cells if cell is not None]

    def _cell(
        self, traffic: Traffics, tiered: TieredTraffic, preset: str, size: Size
    ) -> Cell | None:
        groups = preset_groups(preset)
        memory = tiered.memory(groups, size)
        if memory.blocks < LEAST_BLOCKS or not memory.chunks:
            return None
        runs = {}
        for variant in self.variants:
            played = tiered.run(groups, variant, memory)
            if played.rejected_requests:
                return None
            runs[variant.name] = played
        return Cell(
            workload=traffic.workload.name,
            kind=traffic.workload.kind,
            seed=traffic.seed,
            half=traffic.half.value,
            preset=preset,
            size=str(size),
            memory=memory,
            runs=runs,
        )
