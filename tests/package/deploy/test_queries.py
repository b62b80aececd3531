"""Prometheus itself evaluates every query of the dashboard, the runbook and the alerts.

It scrapes pages of servers: :mod:`tests.package.deploy.servers`.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kvoxide.vllm.metrics.definitions import METRICS

from tests.package.deploy.servers import FAULTS, JOBS, history
from tests.testing import queries
from tests.testing.prometheus import Prometheus, running
from tests.testing.queries import Query

ANSWERED = [*queries.of_dashboard(), *queries.of_runbook()]
ALERTS = list(queries.of_alerts())
OF_METRICS = list(queries.of_list_of_metrics())


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with running(folder, JOBS, rules=queries.ALERTS, history=history()) as it:
        yield it


@pytest.mark.parametrize("query", ANSWERED, ids=lambda query: query.place)
def test_a_query_has_an_answer(prometheus: Prometheus, query: Query) -> None:
    assert prometheus.query(query.expression) != []


@pytest.mark.parametrize("query", OF_METRICS, ids=lambda query: query.place)
def test_the_query_of_a_metric_has_an_answer_at_least_after_a_fault(
    prometheus: Prometheus, query: Query
) -> None:
    assert prometheus.query(query.expression) != []


def test_the_list_of_metrics_has_a_query_for_each() -> None:
    assert {query.place for query in OF_METRICS} == {metric.name for metric in METRICS}


@pytest.mark.parametrize("query", ALERTS, ids=lambda query: query.place)
def test_an_alert_is_raised_by_its_faults_only(prometheus: Prometheus, query: Query) -> None:
    expected = {name for name, fault in FAULTS.items() if query.place in fault.alerts}
    assert expected != set()
    prometheus.wait_for(
        lambda: {labels["job"] for labels in prometheus.query(query.expression)}, expected
    )


def test_prometheus_raises_every_alert_with_a_complete_text(prometheus: Prometheus) -> None:
    delayed = {rule["alert"] for rule in queries.alerts() if "for" in rule}
    expected = {
        (name, alert, "pending" if alert in delayed else "firing")
        for name, fault in FAULTS.items()
        for alert in fault.alerts
    }
    prometheus.wait_for(lambda: {identity(alert) for alert in prometheus.alerts()}, expected)
    for alert in prometheus.alerts():
        for text in alert["annotations"].values():
            assert not re.search(r"<(no value|error)|engine \)|: $|\{\{", text), text


def identity(alert: dict[str, Any]) -> tuple[str, str, str]:
    return alert["labels"]["job"], alert["labels"]["alertname"], alert["state"]


def test_a_wrong_query_is_noticed(prometheus: Prometheus) -> None:
    assert prometheus.query("kvoxide_activ") == []
    with pytest.raises(AssertionError, match="parse error"):
        prometheus.query("sum(kvoxide_active")
