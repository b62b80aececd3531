"""promtool accepts the alert rules and runs their tests. The runbook explains each alert."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.testing import prometheus, queries
from tests.testing.paths import ROOT
from tests.wheel import readme

FOLDER = Path(__file__).parent
TESTS = sorted(FOLDER.glob("*_test.yml"))
RULES = queries.alerts()

each_rule = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    assert f"{len(RULES)} rules found" in prometheus.check(
        "check", "config", ROOT / "deploy/prometheus/prometheus.yml"
    )


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_promtool_expects_them(path: Path) -> None:
    assert "SUCCESS" in prometheus.check("test", "rules", path)


@each_rule
def test_the_tests_of_promtool_expect_every_alert_at_least_once(rule: dict[str, Any]) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in TESTS)
    assert f'alertname="{rule["alert"]}"' in text


@each_rule
def test_an_alert_says_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


@each_rule
def test_an_alert_links_to_its_section_of_the_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    path = queries.RUNBOOK.relative_to(ROOT)
    assert page == f"{readme.repository()}/blob/main/{path}"
    assert anchor == rule["alert"].lower()
    assert sections().count(rule["alert"]) == 1


def test_the_runbook_explains_no_other_alert() -> None:
    named = {title for title in sections() if title.startswith("Kvoxide")}
    assert named == {rule["alert"] for rule in RULES}


def test_the_table_of_the_runbook_has_the_severities_and_times() -> None:
    rows = re.findall(
        r"^\| \[(Kvoxide\w+)\]\(#\w+\) \| (\w+) \| ([^|]+) \|", runbook(), re.MULTILINE
    )
    assert rows == [
        (rule["alert"], rule["labels"]["severity"], in_words(rule.get("for"))) for rule in RULES
    ]


def in_words(duration: str | None) -> str:
    if duration is None:
        return "at once"
    units = {"s": "seconds", "m": "minutes"}
    return f"{duration[:-1]} {units[duration[-1]]}"


def runbook() -> str:
    return queries.RUNBOOK.read_text(encoding="utf-8")


def sections() -> list[str]:
    return re.findall(r"^#+ (.+)$", runbook(), re.MULTILINE)
