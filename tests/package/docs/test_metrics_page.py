"""Tests that the page about metrics has each metric as the code defines it."""

import re
from dataclasses import dataclass

import pytest
from kvoxide.vllm.environment.fallbacks import FALLBACK_KINDS
from kvoxide.vllm.metrics.definitions import COMMON_LABELS, METRICS, Metric

from tests.testing.paths import ROOT

PAGE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
FUNCTIONS = {
    "by",
    "count",
    "histogram_quantile",
    "increase",
    "max",
    "min",
    "rate",
    "scalar",
    "sum",
}


@dataclass(frozen=True)
class Row:
    """A row of the page's tables."""

    kind: str
    labels: str
    meaning: str
    query: str


def rows() -> dict[str, Row]:
    cells = re.findall(r"^\| `(kvoxide_\w+)` \|(.*)\|$", PAGE, re.M)
    split = {name: [c.strip() for c in re.split(r"(?<!\\)\|", rest)] for name, rest in cells}
    return {name: Row(*found) for name, found in split.items()}


def described_labels(metric: Metric) -> str:
    parts = []
    for label, values in metric.labels.items():
        known = ": " + ", ".join(f"`{value}`" for value in values) if values else ""
        parts.append(f"`{label}`{known}")
    return "; ".join(parts) or "-"


def test_the_page_has_each_metric_and_no_other() -> None:
    assert sorted(rows()) == sorted(metric.name for metric in METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_row_is_as_the_metric_is_defined(metric: Metric) -> None:
    row = rows()[metric.name]
    assert (row.kind, row.labels) == (metric.kind, described_labels(metric))
    assert row.meaning == metric.documentation


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_query_names_the_metric_and_what_exists(metric: Metric) -> None:
    query = rows()[metric.name].query.strip("`").replace("\\|", "|")
    assert metric.name in query
    assert all(query.count(pair[0]) == query.count(pair[1]) for pair in ("()", "{}", "[]"))
    series = {each.name for each in METRICS}
    series |= {f"{each.name}_bucket" for each in METRICS if each.kind == "histogram"}
    labels = {*COMMON_LABELS, "le", *(label for each in METRICS for label in each.labels)}
    without_values = re.sub(r'"[^"]*"|\[\w+\]|\b[\d.]+\b', "", query)
    named = set(re.findall(r"[a-z_]\w*(?::\w+)?", without_values))
    assert named - series - labels - FUNCTIONS <= {"vllm:prefix_cache_hits_total"}


def test_the_page_has_each_reason_of_a_fallback() -> None:
    section = PAGE.partition("## Reasons of fallbacks")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == list(FALLBACK_KINDS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert metric.name.startswith("kvoxide_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not set(metric.labels) & {*COMMON_LABELS, "le"}
