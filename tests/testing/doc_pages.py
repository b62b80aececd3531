"""Read the pages of docs: their code, and the examples with output that they show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testing.markdown import prose
from tests.testing.paths import DOCS, ROOT

PRESENT: Final = [
    ROOT / "README.md",
    *(
        page
        for page in sorted(DOCS.glob("**/*.md"))
        if page.parent.name != "lab" and page.name != "STYLE.md"
    ),
]
"""The pages that describe the present state. Records of runs and examples of style do not."""

ANY: Final = "…"
_FENCE: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"`([^`]+)`")
# A span of these is a message, even if it begins with the name of a program.
_MESSAGE: Final = re.compile(r"<[a-z ]+>|; ")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_COMMENT: Final = re.compile(r"\s#\s.*$", re.MULTILINE)


@dataclass(frozen=True)
class Fence:
    """A block of code."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        """The page and the beginning of the block, for the name of a test."""
        return f"{self.page.relative_to(ROOT)}: {self.text.splitlines()[0][:40]}"

    def script(self) -> str:
        """Return the commands of a block of language ``console``."""
        lines = (re.match(r"[$>] (.*)", line) for line in self.text.splitlines())
        return "".join(f"{line[1]}\n" for line in lines if line is not None)

    def output(self) -> re.Pattern[str]:
        """Return a pattern for the output that a block of language ``console`` shows."""
        shown = [line for line in self.text.splitlines() if not re.match(r"[$>]( |$)", line)]
        return re.compile("".join(map(_line_pattern, shown)))


def _line_pattern(line: str) -> str:
    if line.strip() == ANY:
        return r"(?:.*\n)*?"
    parts = (re.escape(part) for part in squeezed(line).split(ANY))
    return r" ?.*? ?".join(part.replace(r"\ ", " ").strip() for part in parts) + r"\n"


def squeezed(line: str) -> str:
    """Return a line of a table or text with single spaces."""
    return " ".join(line.split())


def fences(page: Path) -> Iterator[Fence]:
    """Yield the blocks of code of a page, without their indentation."""
    for indent, language, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        lines = (line.removeprefix(indent) for line in text.splitlines())
        yield Fence(page, language, "".join(f"{line}\n" for line in lines))


def spans(page: Path) -> list[str]:
    """Return the code within the text of a page."""
    return _SPAN.findall(prose(page.read_text(encoding="utf-8")))


def code(page: Path) -> list[str]:
    """Return all code of a page: within its text, and in blocks."""
    return [*spans(page), *(fence.text for fence in fences(page))]


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences of a page, without tables and titles, and with X for code."""
    text = re.sub(r"^ *\|.*$|^#+ .*$", "\n", prose(page.read_text("utf-8")), flags=re.MULTILINE)
    text = _LINK.sub(r"\1", _SPAN.sub("X", text))
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text):
        yield from filter(None, re.split(r"(?<=[.!?:;])\s+", squeezed(block)))


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of a program in the code of a page."""
    scripts = (each.script() if each.language == "console" else each.text for each in fences(page))
    for text in (*(each for each in spans(page) if not _MESSAGE.search(each)), *scripts):
        lines = text.replace("\\\n", " ")
        for line in _COMMENT.sub("", lines).splitlines():
            call = re.match(rf"\s*(?:[A-Z_]+=\S+ )*{re.escape(program)}(?: (.*))?$", line)
            if call is not None:
                yield shlex.split(call[1] or "")
