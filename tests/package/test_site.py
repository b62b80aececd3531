"""Tests what the site of docs needs beyond plugins. ``tests/run.sh docs`` builds the site."""

import re

import kvoxide
import pytest

from tests.site.checks import problems
from tests.site.links import for_site
from tests.site.markup import to_markdown
from tests.testing.paths import DOCS, ROOT

REPOSITORY = "https://github.com/kvoxide/kvoxide/blob/main"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](policies.md#b) [c](../explain/safety.md)",) * 2,
        ("[a](../../CONTRIBUTING.md#set-up)", f"[a]({REPOSITORY}/CONTRIBUTING.md#set-up)"),
        ("[a](..)", "[a](https://github.com/kvoxide/kvoxide/blob/main/docs)"),
        ("[a](#b) [c](https://x.org)",) * 2,
        ("```\n[a](../../x.md)\n```",) * 2,
    ],
)
def test_links_out_of_the_docs_lead_to_the_repository(text: str, expected: str) -> None:
    assert for_site(text, DOCS / "reference" / "groups.md") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Raises :class:`ConfigError`.", "Raises [`ConfigError`][kvoxide._core.ConfigError]."),
        ("See :meth:`finish`.", "See [`finish`][kvoxide.Trace.finish]."),
        ("See :meth:`Trace.finish`.", "See [`Trace.finish`][kvoxide._core.Trace.finish]."),
        ("One of :data:`GroupKind`.", "One of `GroupKind`."),
        ("Then free::\n\n    free()", "Then free:\n\n    free()"),
    ],
)
def test_docstrings_become_markdown(text: str, expected: str) -> None:
    assert to_markdown(text, "kvoxide.Trace") == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('<script src="assets/a.js"></script>', 0),
        ('<script src="https://cdn.org/a.js"></script>', 1),
        ("<script src=//cdn.org/a.js></script>", 1),
        ('<link rel="stylesheet" href="https://cdn.org/a.css">', 1),
        ('<link rel="canonical" href="https://kvoxide.org/a.html">', 0),
        ('<a href="https://kvoxide.org">kvoxide</a>', 0),
        ('<a href="https://github.com/kvoxide" data-md-component="source">kvoxide</a>', 1),
        ("<article>\n<p>Two things:\n- one\n- two</p>\n</article>", 2),
        ("<article>\n<p>| a | b |\n|---|---|</p>\n</article>", 2),
        ("<article><pre><code>\n- one\n</code></pre></article>", 0),
        ("<nav>\n1. Install\n</nav>", 0),
    ],
)
def test_problems_of_a_page_are_found(output: str, expected: int) -> None:
    assert len(list(problems(output))) == expected


def test_the_python_api_has_every_public_name() -> None:
    page = (DOCS / "reference/python.md").read_text("utf-8")
    assert sorted(re.findall(r"^::: kvoxide\.(\w+)$", page, re.MULTILINE)) == sorted(
        kvoxide.__all__
    )


def test_the_address_of_the_site_is_the_repositorys() -> None:
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert f"repo_url: {REPOSITORY.removesuffix('/blob/main')}\n" in settings
