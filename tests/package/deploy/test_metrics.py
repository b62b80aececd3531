"""The queries, the pages and the dashboard agree with the list of kvoxide's metrics."""

import re
from collections.abc import Iterator

import pytest
from kvoxide.vllm.metrics.definitions import BY_NAME, COMMON_LABELS, METRICS, Metric

from tests.package.deploy.servers import PAGES
from tests.testing import queries

SAMPLE = re.compile(r"^(kvoxide_\w+)(?:\{(.*)\})? \S+$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
QUERIES = (*queries.of_dashboard(), *queries.of_runbook(), *queries.of_alerts())

each_metric = pytest.mark.parametrize("metric", METRICS, ids=[each.name for each in METRICS])


def metric_of(name: str) -> Metric:
    """Return the metric of a name in a page or a query."""
    return BY_NAME[name if name in BY_NAME else re.sub(r"_(bucket|sum|count)$", "", name)]


def samples() -> Iterator[tuple[Metric, dict[str, str]]]:
    for path in PAGES.glob("*.txt"):
        for name, labels in SAMPLE.findall(path.read_text(encoding="utf-8")):
            yield metric_of(name), dict(LABEL.findall(labels))


@each_metric
def test_the_dashboard_shows_the_metric(metric: Metric) -> None:
    shown = {
        metric_of(name).name
        for query in queries.of_dashboard()
        for name in re.findall(r"\bkvoxide_\w+", query.expression)
    }
    assert metric.name in shown


@each_metric
def test_a_page_has_the_metric_with_its_labels(metric: Metric) -> None:
    found = [labels for each, labels in samples() if each is metric]
    assert found != []
    for labels in found:
        assert labels.keys() - {"le"} == {*COMMON_LABELS, *metric.labels}
        for name, values in metric.labels.items():
            assert labels[name] in values or not values


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_query_selects_values_that_labels_can_have(query: queries.Query) -> None:
    for name, selector in re.findall(r"\b(kvoxide_\w+)(?:\{([^}]*)\})?", query.expression):
        metric = metric_of(name)
        for label, operator, value in re.findall(r'(\w+)(=|!=|=~|!~)"([^"]*)"', selector):
            if metric.labels.get(label):
                assert any(re.fullmatch(value, each) for each in metric.labels[label]), operator
