"""The rows of ``python -m benches.neighbours``, and their output."""

from dataclasses import dataclass

from kvoxide.lab.output.tables import Column, print_table


@dataclass(frozen=True)
class Measured:
    """CPU time of one action with either manager, in microseconds."""

    name: str
    num_blocks: int
    num_tokens: int
    stock_us: float
    kvoxide_us: float

    @property
    def ratio(self) -> float:
        """vLLM's time divided by kvoxide's. Above 1, kvoxide is faster."""
        return self.stock_us / max(self.kvoxide_us, 1e-3)


def print_rows(rows: list[Measured]) -> None:
    """Print each row with its ratio."""
    keys = [
        Column("what", [row.name for row in rows], is_name=True),
        Column("blocks", [f"{row.num_blocks:,}" for row in rows]),
        Column("tokens", [f"{row.num_tokens:,}" for row in rows]),
    ]
    columns = [
        Column("vLLM, us", [f"{row.stock_us:.3f}" for row in rows]),
        Column("kvoxide, us", [f"{row.kvoxide_us:.3f}" for row in rows]),
        Column("ratio", [f"{row.ratio:.2f}" for row in rows]),
    ]
    print_table("vLLM's time / kvoxide's, per neighbour", keys, columns)
