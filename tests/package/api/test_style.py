"""The text of each top folder keeps to what docs/STYLE.md says can be counted."""

from collections import Counter

import pytest

from tests.testing import style
from tests.testing.paths import ROOT

# A ceiling only falls: a change that removes a count lowers it here.
CEILINGS = {
    "CHANGELOG.md": {"those of": 4, "words of rule 5": 10},
    "CONTRIBUTING.md": {"those of": 1, "words of rule 5": 4},
    "README.md": {"those of": 1, "words of rule 5": 3},
    "SECURITY.md": {"those of": 1, "words of rule 5": 3},
    "benches": {"noun clauses": 5, "those of": 4, "words of rule 5": 10},
    "docs": {"those of": 21, "words of rule 5": 53},
    "python": {"noun clauses": 161, "those of": 69, "words of rule 5": 131},
    "rust": {"noun clauses": 158, "those of": 154, "words of rule 5": 185},
    "tests": {"noun clauses": 99, "those of": 48, "words of rule 5": 113},
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
