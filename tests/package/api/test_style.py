"""The text of each top folder keeps to what docs/STYLE.md says can be counted."""

from collections import Counter

import pytest

from tests.testing import style
from tests.testing.paths import ROOT

# A ceiling only falls: a change that removes a count lowers it here.
CEILINGS = {
    "python": {"noun clauses": 22, "those of": 13, "words of rule 5": 15},
    "rust": {"noun clauses": 9, "those of": 8, "words of rule 5": 10},
}


def test_each_top_folder_is_at_its_ceiling() -> None:
    found = {top: dict(counter) for top, counter in style.counts().items()}
    assert found == CEILINGS, "lower the ceilings, or see docs/STYLE.md for what to write instead"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("docstring", "What is left of a request.", ["noun clauses"]),
        ("docstring", "Return what is left of a request.", []),
        ("docstring", "What is left of a request?", []),
        ("comment", "What is left of a request.", []),
        ("comment", "Nobody stands behind it.", ["words of rule 5"] * 3),
        ("page", "The blocks of a request and those of\nanother.", ["those of"]),
    ],
)
def test_a_text_is_counted_for_what_it_is(kind: str, text: str, expected: list[str]) -> None:
    assert list(style.matches(kind, text)) == expected


def test_code_and_other_pages_are_not_counted() -> None:
    texts = dict(style.texts(ROOT / "docs" / "STYLE.md"))
    assert "KVOXIDE_ACCEPT" in texts["page"]
    assert "_tell_observers" not in texts["page"]
    assert Counter(style.matches("page", texts["page"]))["words of rule 5"] > 0
