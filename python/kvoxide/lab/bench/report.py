"""Shows the results of a run, as a table and as a record."""

from collections.abc import Sequence
from typing import Any

from kvoxide.lab.bench.comparison import Measurement
from kvoxide.lab.output.tables import Column, print_table


def print_measurements(found: Sequence[Measurement], title: str) -> None:
    """Print a line per operation, with times and ratio of each layout."""
    rows = list(dict.fromkeys(m.row for m in found))
    cells = {(m.row, m.layout): m for m in found}
    columns: list[Column] = []
    for layout in dict.fromkeys(m.layout for m in found):
        columns += _columns(layout, [cells[row, layout] for row in rows])
    print_table(title, [Column("operation", [row.text for row in rows], is_name=True)], columns)


def _columns(layout: str, of_layout: Sequence[Measurement]) -> list[Column]:
    ours = Column(f"{layout}\nkvoxide µs", [time_text(m.kvoxide_us) for m in of_layout])
    if of_layout[0].vllm_us is None:
        return [ours]
    return [
        Column(f"{layout}\nvLLM µs", [time_text(m.vllm_us) for m in of_layout]),
        ours,
        Column(f"{layout}\nratio", [ratio_text(m.ratio) for m in of_layout]),
    ]


def time_text(microseconds: float | None) -> str:
    """Return microseconds in words, with three digits or more."""
    if microseconds is None:
        return "-"
    return f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.3g}"


def ratio_text(ratio: float | None) -> str:
    """Return in words how many times faster kvoxide is."""
    if ratio is None:
        return "-"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}"


def rows_of(found: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return one dictionary per operation and layout, for JSON."""
    return [
        {
            "row": m.row.key,
            "text": m.row.text,
            "layout": m.layout,
            "vllm_us": m.vllm_us,
            "kvoxide_us": m.kvoxide_us,
            "ratio": m.ratio,
            "goal": m.goal,
        }
        for m in found
    ]
