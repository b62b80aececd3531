"""Plots a run: a bar per operation and layout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvoxide.lab.bench.comparison import Measurement
from kvoxide.lab.bench.report import ratio_text, time_text
from kvoxide.lab.output.figures import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES_PER_BAR: Final = 0.2
_SHARE_OF_BARS: Final = 0.84


def draw_measurements(found: Sequence[Measurement], title: str) -> "Figure":
    """Draw how many times faster than vLLM's manager each call is. Without vLLM, draw microseconds
    per operation."""
    layouts = list(dict.fromkeys(m.layout for m in found))
    rows = list(dict.fromkeys(m.row for m in found))
    figure = new_figure(title, height=1.5 + _INCHES_PER_BAR * len(found) + 0.1 * len(rows))
    axes = figure.subplots()
    thickness = _SHARE_OF_BARS / len(layouts)
    for index, layout in enumerate(layouts):
        of_layout = [m for m in found if m.layout == layout]
        offset = (index - (len(layouts) - 1) / 2) * thickness
        bars = axes.barh(
            [rows.index(m.row) + offset for m in of_layout],
            [m.kvoxide_us if m.ratio is None else m.ratio for m in of_layout],
            height=thickness * 0.92,
            color=COLOURS[index % len(COLOURS)],
            label=layout,
        )
        axes.bar_label(bars, [_label(m) for m in of_layout], padding=3, fontsize="x-small")
    axes.set_yticks(range(len(rows)), [row.text for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1, y=0.01)
    axes.set_xlabel(_quantity(found))
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _label(measurement: Measurement) -> str:
    if measurement.ratio is None:
        return time_text(measurement.kvoxide_us)
    return f"{ratio_text(measurement.ratio)}x"


def _quantity(found: Sequence[Measurement]) -> str:
    is_alone = any(m.ratio is None for m in found)
    return "kvoxide, µs of CPU time" if is_alone else "times faster than vLLM's manager"
