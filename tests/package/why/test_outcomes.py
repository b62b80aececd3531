"""The table of outcomes, and the page that shows it."""

import re

from kvoxide.outcomes import NAMES, OUTCOMES, by_name, largest_avoidable

from tests.testing.paths import DOCS

PAGE = (DOCS / "how-to" / "find-lost-hits.md").read_text("utf-8")


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table below a title of the page."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_has_the_meaning_of_each_outcome() -> None:
    def avoidable(is_hit: bool, is_avoidable: bool) -> str:
        return "" if is_hit else "yes" if is_avoidable else "no"

    assert rows("Outcomes") == [
        [f"`{each.name}`", each.meaning, avoidable(each.is_hit, each.is_avoidable)]
        for each in OUTCOMES
    ]


def test_the_page_has_the_advice_of_each_avoidable_outcome() -> None:
    assert [(name.strip("`"), advice.replace("`", "")) for name, advice in rows("What to do")] == [
        (each.name, each.advice) for each in OUTCOMES if each.is_avoidable
    ]


def test_each_setting_is_named_in_its_advice_and_as_code_on_the_page() -> None:
    advice = {name.strip("`"): text for name, text in rows("What to do")}
    for each in OUTCOMES:
        assert bool(each.settings) is each.is_avoidable
        for setting in each.settings:
            assert setting in each.advice
            assert re.search(rf"`{setting}\b[^`]*`", advice[each.name]), setting


def test_hits_are_not_avoidable() -> None:
    assert [each.name for each in OUTCOMES if each.is_hit] == ["hit_gpu", "hit_host", "hit_answer"]
    assert not any(each.is_hit and each.is_avoidable for each in OUTCOMES)


def test_the_largest_avoidable_outcome_has_the_most_tokens() -> None:
    assert largest_avoidable(dict.fromkeys(NAMES, 0)) is None
    assert largest_avoidable({"hit_gpu": 9, "first_time": 8}) is None
    found = largest_avoidable({"first_time": 8, "below_block": 2, "evicted_tail": 3})
    assert found is not None
    assert (found[0].name, found[1]) == ("evicted_tail", 3)
    assert by_name(range(10))["not_cacheable"] == 9
