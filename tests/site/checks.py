"""Warn of what a page should not have, once it is built. With ``strict``, the build then fails."""

import logging
import re
from collections.abc import Iterator
from typing import Any, Final

_LOG: Final = logging.getLogger("mkdocs.kvoxide")
_LOADS: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?((?:https?:)?//[^\" >]+)"
    r"|<link\b(?![^>]*\brel=\"?(?:canonical|edit))[^>]*\bhref=\"?((?:https?:)?//[^\" >]+)"
)
# The theme's script asks the repository's host for facts about it.
_ASKS_HOST: Final = re.compile(r"data-md-component=\"?source\b")
_ARTICLE: Final = re.compile(r"<article\b.*?</article>", re.DOTALL)
_CODE: Final = re.compile(r"<(pre|code|script|style)\b.*?</\1>", re.DOTALL)
# GitHub begins a list or a table after a line of text. Python-Markdown needs an empty line there.
_UNRENDERED: Final = re.compile(r"^(?:<p>)?\s*((?:[-*]|\d+\.) \S.*|\|.*\|)(?:</p>)?$", re.MULTILINE)


def on_post_page(output: str, page: Any, **_: Any) -> None:
    """Check a page. mkdocs calls this function for each."""
    for problem in problems(output):
        _LOG.warning("%s: %s", page.file.src_uri, problem)


def problems(output: str) -> Iterator[str]:
    """Yield what is wrong with the HTML of a page."""
    for load in _LOADS.finditer(output):
        yield f"the page loads {load[1] or load[2]}; it has to work without a network"
    if _ASKS_HOST.search(output):
        yield "the page asks the host of the repository; see tests/site/theme"
    article = "".join(_ARTICLE.findall(output))
    for text in _UNRENDERED.findall(_CODE.sub("", article)):
        yield f"this is Markdown that was not rendered: {text!r}"
