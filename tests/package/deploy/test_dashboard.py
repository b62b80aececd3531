"""The dashboard is complete: every metric of kvoxide has a panel, and every panel can be drawn.

``tests/run.sh lint`` compares the file with Grafana's own types (:mod:`tests.testing.grafana`).
"""

import re
from itertools import combinations
from typing import Any

from tests.testing import queries

PANELS = queries.panels()


def test_ids_are_unique() -> None:
    ids = [panel["id"] for panel in queries.dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_panels_do_not_overlap_and_fit_the_grid() -> None:
    places = [panel["gridPos"] for panel in queries.dashboard()["panels"]]
    assert all(it["x"] >= 0 and it["x"] + it["w"] <= 24 for it in places)
    assert not any(overlap(*pair) for pair in combinations(places, 2))


def overlap(a: dict[str, int], b: dict[str, int]) -> bool:
    return (
        a["x"] < b["x"] + b["w"]
        and b["x"] < a["x"] + a["w"]
        and a["y"] < b["y"] + b["h"]
        and b["y"] < a["y"] + a["h"]
    )


def test_a_panel_says_what_it_shows_and_takes_the_chosen_servers() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] == source
            metrics = re.findall(r"(?:kvoxide_|vllm:)\w+(\{[^}]*\})?", target["expr"])
            assert metrics != []
            for selector in metrics:
                assert chosen(selector) == {"model_name", "instance", "engine"}, target["expr"]


def chosen(selector: str) -> set[str]:
    return {name for name, value in re.findall(r'(\w+)=~"\$(\w+)"', selector) if name == value}


def test_names_in_legends_are_labels_that_the_query_keeps() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            kept = re.findall(r"(?:sum|min|max) ?by \(([^)]*)\)", target["expr"])
            if kept:
                names = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert names <= set(kept[0].split(", ")), panel["title"]


def test_the_dashboard_shows_every_metric_that_an_alert_uses() -> None:
    shown = names(query.expression for query in queries.of_dashboard())
    assert names(query.expression for query in queries.of_alerts()) <= shown


def names(expressions: Any) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\bkvoxide_\w+", text)}
