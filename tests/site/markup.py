"""Translate the markup of docstrings, reStructuredText, to the site's Markdown."""

import re
from typing import Final

_ROLE: Final = re.compile(r":(\w+):`~?([\w.]+)`")
_LITERAL_BLOCK: Final = re.compile(r"::$", re.MULTILINE)


def to_markdown(text: str, holder: str) -> str:
    """Return a docstring in Markdown. ``holder`` is the path of the class or module around it."""

    def reference(role: re.Match[str]) -> str:
        kind, name = role.groups()
        if kind in {"mod", "data"}:
            return f"`{name}`"
        within = holder if kind in {"meth", "attr"} and "." not in name else "kvoxide._core"
        return f"[`{name}`][{within}.{name}]"

    return _LITERAL_BLOCK.sub(":", _ROLE.sub(reference, text))
