"""Prints tables on standard output."""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

# Wider than any table, because a pipe has no width.
_PIPE_WIDTH = 2000


@dataclass(frozen=True)
class Column:
    """A header and a cell per row. ``is_name`` marks words, which are aligned left and may wrap."""

    header: str
    cells: list[str]
    is_name: bool = False


class Table(NamedTuple):
    """A title and a table, as :func:`print_table` takes them. The columns in ``keys`` name each
    row."""

    title: str
    keys: Sequence[Column]
    columns: Sequence[Column]


def print_table(title: str, keys: Sequence[Column], columns: Sequence[Column]) -> None:
    """Print the columns to the right of the keys. If the terminal is too narrow for one table,
    print several."""
    console = _console()
    console.print(Text(title))
    columns = list(columns)
    while columns:
        count = _num_fitting(console, keys, columns)
        console.print(_table(keys, columns[:count]))
        columns = columns[count:]


def _console() -> Console:
    # The terminal's encoding may lack characters of a file name, or µ.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def _num_fitting(console: Console, keys: Sequence[Column], columns: Sequence[Column]) -> int:
    """Return how many of the columns fit next to the keys, at least one."""
    unbounded = console.options.update(width=_PIPE_WIDTH)
    for count in range(len(columns), 1, -1):
        table = _table(keys, columns[:count])
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            return count
    return 1


def _table(keys: Sequence[Column], columns: Sequence[Column]) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in (*keys, *columns):
        name = column.is_name
        table.add_column(column.header, justify="left" if name else "right", no_wrap=not name)
    for row in zip(*(column.cells for column in (*keys, *columns)), strict=True):
        table.add_row(*map(Text, row))
    return table
