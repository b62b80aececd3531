"""Reads the PromQL queries of dashboards, alerts and pages of docs."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.testing import doc_pages
from tests.testing.paths import DOCS, ROOT

DASHBOARD: Final = ROOT / "deploy/grafana/kvoxide.json"
ALERTS: Final = ROOT / "deploy/prometheus/alerts.yml"
RUNBOOK: Final = DOCS / "how-to/operate.md"
METRICS: Final = DOCS / "reference/metrics.md"

_BUILT_IN: Final = {"__rate_interval": "1m", "__range": "1h"}


@dataclass(frozen=True)
class Query:
    """A query, and where it is."""

    place: str
    expression: str


def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text(encoding="utf-8")))


def panels() -> list[dict[str, Any]]:
    """Return the panels that have queries."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def variables() -> list[dict[str, Any]]:
    return list(dashboard()["templating"]["list"])


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def of_dashboard() -> Iterator[Query]:
    """Yield the queries of all panels as they are if all servers are selected."""
    chosen = {each["name"]: each["allValue"] for each in variables() if "allValue" in each}
    values = _BUILT_IN | chosen
    for panel in panels():
        for target in panel["targets"]:
            place = f"{panel['title']}: {target['refId']}"
            yield Query(place, _with_variables(target["expr"], values))


def of_runbook() -> Iterator[Query]:
    for fence in doc_pages.fences(RUNBOOK):
        if fence.language == "promql":
            yield Query(fence.name, fence.text)


def of_list_of_metrics() -> Iterator[Query]:
    """Yield the query of each metric, which is the last cell of its row."""
    text = METRICS.read_text(encoding="utf-8")
    for name, cell in re.findall(r"^\| `(\w+)` \|.*\| `([^`]+)` \|$", text, re.MULTILINE):
        yield Query(name, cell.replace("\\|", "|"))


def of_alerts() -> Iterator[Query]:
    for alert in alerts():
        yield Query(alert["alert"], alert["expr"])


def _with_variables(expression: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expression)
