"""Define the content of a page, before it is HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvoxide.lab.output.tables import Table

Width = Literal["whole", "half", "third"]


@dataclass(frozen=True)
class Figure:
    """A plot: ``plot`` is what plotly.js draws (``data`` and ``layout``), in the light colours.
    ``note`` says how to read it, ``width`` how much of the page it takes on a wide screen."""

    title: str
    note: str
    plot: dict[str, Any]
    width: Width = "half"


@dataclass(frozen=True)
class Group:
    """Figures that are shown when their title is clicked on, or at once if they are ``open``."""

    title: str
    figures: Sequence[Figure]
    is_open: bool


@dataclass(frozen=True)
class Section:
    """Figures, groups of further ones, and tables below them."""

    title: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    groups: Sequence[Group] = ()


@dataclass(frozen=True)
class Tile:
    """A figure that says it all, such as the highest hit share."""

    title: str
    value: str
    note: str


@dataclass(frozen=True)
class Page:
    """A page: ``facts`` are what was played and how, each a name and lines of text."""

    title: str
    facts: dict[str, Sequence[str]]
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()
    footer: str = ""
