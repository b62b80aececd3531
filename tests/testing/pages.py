"""Reads a page of ``--html`` without a browser."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.testing.traces import succeed

Plot = dict[str, Any]


class PageText(HTMLParser):
    """The scripts, titles and tables of a page, and every element in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")
        match tag:
            case "table":
                self.tables.append([])
            case "tr":
                self.tables[-1].append([])
            case "th" | "td":
                self.tables[-1][-1].append("")
            case "script":
                self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        match self._open[-1] if self._open else "":
            case "th" | "td":
                self.tables[-1][-1][-1] += data
            case "script":
                self.scripts[-1] += data
            case "" | "html":
                pass
            case tag:
                self.texts[tag][-1] += data

    @property
    def plots(self) -> dict[str, Plot]:
        """The plots, by their titles."""
        numbers = [a["data-plot"] for _, a in self.elements if "data-plot" in a]
        titles = [a["aria-label"] for _, a in self.elements if "data-plot" in a]
        plots = json.loads(self.scripts[0], parse_constant=_refuse)["plots"]
        assert [int(number or -1) for number in numbers] == list(range(len(plots)))
        return dict(zip(map(str, titles), plots, strict=True))

    def table(self, first: str) -> list[dict[str, str]]:
        """Return the rows of the only table whose header has this column."""
        (found,) = [table for table in self.tables if first in table[0]]
        head, *rows = found
        return [dict(zip(head, row, strict=True)) for row in rows]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def traces_of(plot: Plot) -> dict[str, Plot]:
    """Return the marks of a plot that its legend has, by their names."""
    return {trace["name"]: trace for trace in plot["data"] if trace.get("showlegend", True)}


def replay_page(folder: Path, *arguments: str | Path) -> tuple[PageText, dict[str, Any]]:
    """Return the page and the JSON of one replay."""
    page, record = folder / "page.html", folder / "page.json"
    succeed("replay", *arguments, "--html", page, "--json", record)
    return PageText(page.read_text(encoding="utf-8")), json.loads(record.read_bytes())
