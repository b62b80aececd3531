"""How lines and axes look, alike in all plots of a page."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvoxide.lab.replay.results import has_tick_for_each, is_logarithmic, line_style

SHARE: Final = {"tickformat": ",.0%", "hoverformat": ".2%", "rangemode": "tozero"}
SECONDS: Final = {"ticksuffix": " s", "hoverformat": ",.3f", "rangemode": "tozero"}
COUNT: Final = {"tickformat": "~s", "hoverformat": ",d", "rangemode": "tozero"}
REQUESTS: Final = {"title": {"text": "requests"}, "tickformat": ",d", "rangemode": "tozero"}
HEIGHT: Final = 320
# Curves have no more points than a wide screen shows.
MOST_POINTS: Final = 400


@dataclass(frozen=True)
class Styles:
    """The colours of the policies of a page, in their order."""

    names: Sequence[str]

    def colour(self, name: str) -> str:
        """Return the colour of a line."""
        return line_style(self.names, name).colour

    def line(self, name: str) -> dict[str, Any]:
        """Return the look of a line."""
        style = line_style(self.names, name)
        return {"color": style.colour, "width": style.width, "dash": style.dash}


def layout(height: int = HEIGHT, **settings: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a layout without colours and without a legend. The page adds both."""
    return {
        "template": {},
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
        "showlegend": False,
        "hovermode": "x unified",
        **settings,
    }


def axis(*settings: dict[str, Any], title: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """An axis with these settings, wide enough for its labels."""
    merged = dict(itertools.chain.from_iterable(s.items() for s in settings))
    titled = {"title": {"text": title, "standoff": 10}} if title else {}
    return {"automargin": True, "zeroline": False, **merged, **titled, **more}


def quantity_axis(xs: Sequence[int]) -> dict[str, Any]:
    """An axis over some numbers, with a tick at each of them unless they are many."""
    texts = list(map(_short, xs))
    ticks = {"tickvals": list(xs), "ticktext": texts} if has_tick_for_each(xs) else {}
    return {"type": "log" if is_logarithmic(xs) else "linear", "tickangle": 0, **ticks}


def _short(number: int) -> str:
    """Return a short text of a number, such as 800k, for axes on a narrow screen."""
    for least, factor, unit in ((10**6, 1e6, "M"), (10**4, 1e3, "k")):
        if number >= least:
            return f"{number / factor:.4g}{unit}"
    return f"{number:,}"
