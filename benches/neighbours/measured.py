"""One row of ``python -m benches.neighbours``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """CPU time of one thing that a neighbour does, with either manager, in microseconds."""

    name: str
    num_blocks: int
    num_tokens: int
    stock_us: float
    kvoxide_us: float

    @property
    def ratio(self) -> float:
        """Returns how many times vLLM's speed kvoxide's is; above 1 kvoxide is faster."""
        return self.stock_us / max(self.kvoxide_us, 1e-3)
