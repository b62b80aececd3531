"""Finds the links of Markdown pages, and changes them."""

import re
from collections.abc import Callable
from typing import Final

_FENCE: Final = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)(\[[^\]]*\])\(([^)\s]+)\)")
_ADDRESS: Final = re.compile(r"[a-z]+:|#")


def prose(text: str) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", text)


def with_links(text: str, change: Callable[[str, bool], str]) -> str:
    """Return a page with changed targets of links to files. ``change`` returns the new target of a
    link from the old one, and is called with True for an image."""

    def changed(link: re.Match[str]) -> str:
        image, title, target = link.groups()
        if _ADDRESS.match(target):
            return link[0]
        return f"{image}{title}({change(target, bool(image))})"

    return "".join(
        part if _FENCE.fullmatch(part) else _LINK.sub(changed, part) for part in _FENCE.split(text)
    )
