"""Figures of ``--plot``: created with a title, and saved in the format of a file name."""

import textwrap
from typing import IO, TYPE_CHECKING, Final

from kvoxide.lab.output.colours import POLICIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS: Final = (".png", ".pdf", ".svg")

COLOURS: Final = tuple(light for light, _ in POLICIES)
_DOTS_PER_INCH: Final = 150
_TITLE_WIDTH: Final = 125


def new_figure(title: str, height: float) -> "Figure":
    """Return an empty figure of that height in inches."""
    # Imported here, and without pyplot: matplotlib takes longer to load than a small replay.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, height), layout="constrained")
    FigureCanvasAgg(figure)
    lines = [textwrap.fill(line, _TITLE_WIDTH) for line in title.splitlines()]
    figure.suptitle("\n".join(lines), fontsize="small", parse_math=False)
    return figure


def save(figure: "Figure", stream: IO[bytes], suffix: str) -> None:
    """Write a figure in the format of a file name's ``suffix``, one of :data:`FORMATS`."""
    figure.savefig(stream, format=suffix[1:].lower(), dpi=_DOTS_PER_INCH)
