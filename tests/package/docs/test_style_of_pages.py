"""Tests what docs/STYLE.md says about a page and can be measured."""

from pathlib import Path

import pytest

from tests.testing import doc_pages as pages
from tests.testing.paths import ROOT

MOST_WORDS = 25

each_page = pytest.mark.parametrize(
    "page", pages.PRESENT, ids=[str(page.relative_to(ROOT)) for page in pages.PRESENT]
)


@each_page
def test_sentences_are_short(page: Path) -> None:
    long = [each for each in pages.sentences(page) if len(each.split()) > MOST_WORDS]
    assert long == []


@pytest.mark.parametrize("page", pages.PRESENT[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_at_its_top_for_whom_it_is(page: Path) -> None:
    """The README, which is for everyone, begins with what kvoxide is."""
    assert any(each.startswith("This page is for ") for each in list(pages.sentences(page))[:5])
