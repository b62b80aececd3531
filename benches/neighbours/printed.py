"""Rows as a table."""

from kvoxide.tables import Column, print_table

from benches.neighbours.measured import Measured


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
