"""Servers that Prometheus scrapes in these tests: good ones, and one for each fault.

``python -m tests.engine.scraped_pages`` wrote ``pages``: the answers of real servers. Here their
counters grow with each scrape.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.testing.prometheus import Job, Page, grown, with_values

PAGES: Final = Path(__file__).with_name("pages")
MINUTE: Final = 60
DAY: Final = 24 * 60 * MINUTE


def text(name: str) -> str:
    if name == "stock":
        lines = text("off").splitlines(keepends=True)
        return "".join(line for line in lines if "kvoxide_" not in line)
    return (PAGES / f"{name}.txt").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Fault:
    """A fault, the alerts that it raises, and how its server differs from a good one."""

    alerts: frozenset[str]
    values: Mapping[str, float] = field(default_factory=dict)
    page: str = "adaptive"
    later: Callable[[], str | None] | None = None
    """The page from the third scrape on."""

    def serve(self, scrape: int) -> str | None:
        if self.later is not None and scrape >= 2:
            return self.later()
        return with_values(grown(text(self.page), scrape), self.values)


def good(name: str) -> Page:
    return lambda scrape: grown(text(name), scrape)


def _no_answer() -> None:
    return None


GOOD: Final = {"adaptive": "canary", "shadow": "canary", "off": "stable", "stock": "stable"}
"""The good servers, and their tracks. `off` has ``KVOXIDE=off``, and `stock` has no kvoxide."""

FAULTS: Final = {
    "changed_vllm": Fault(
        frozenset({"KvoxideFallback", "KvoxideNotActive"}),
        {
            'kvoxide_fallbacks_total{reason="changed_vllm"}': 1,
            'kvoxide_active{part="manager"}': 0,
        },
    ),
    "reinstalled_without_kvoxide": Fault(
        frozenset({"KvoxideMetricsMissing"}), later=lambda: text("stock")
    ),
    "poisoned": Fault(
        frozenset({"KvoxidePoisoned"}),
        {'kvoxide_poisoned{part="manager"}': 1, 'kvoxide_active{part="manager"}': 0},
    ),
    "stopped": Fault(frozenset({"KvoxideServerDown"}), later=_no_answer),
    "shadow_difference": Fault(
        frozenset({"KvoxideShadowDifference"}),
        {'kvoxide_shadow_differences_total{part="manager"}': 1},
        "shadow",
    ),
    "standstill": Fault(
        frozenset({"KvoxideStandstill"}), {'kvoxide_standstill{reason="blocks"}': 1}
    ),
    "adaptive_loses": Fault(
        frozenset({"KvoxideAdaptiveLoses"}),
        {'kvoxide_prompt_tokens_total{outcome="hit_gpu"}': 0},
    ),
    "offload_failed": Fault(
        frozenset({"KvoxideOffloadDisabled"}),
        {'kvoxide_poisoned{part="host"}': 1, 'kvoxide_active{part="host"}': 0},
    ),
    "colder_than_yesterday": Fault(
        frozenset({"KvoxideHitShareFell"}),
        {
            'kvoxide_prompt_tokens_total{outcome="hit_gpu"}': 0,
            'kvoxide_prompt_tokens_total{outcome="hit_answer"}': 0,
            "kvoxide_default_hit_tokens_total": 0,
        },
    ),
}

JOBS: Final = {
    **{name: Job(good(name), {"track": track}) for name, track in GOOD.items()},
    **{name: Job(fault.serve, {}) for name, fault in FAULTS.items()},
}


def history() -> str:
    """Return the samples of 20 minutes, from a day ago on, as OpenMetrics.

    The server that is colder today hit nearly all prompt tokens then.
    """
    yesterday = {
        "adaptive": text("adaptive"),
        "colder_than_yesterday": with_values(
            text("adaptive"), {'kvoxide_prompt_tokens_total{outcome="hit_gpu"}': 1e7}
        ),
    }
    start = int(time.time()) - DAY - 20 * MINUTE
    lines = (line for job, page in yesterday.items() for line in _past_lines(job, page, start))
    return "\n".join([*lines, "# EOF", ""])


def _past_lines(job: str, page: str, start: int) -> Iterator[str]:
    for minute in range(20):
        for line in grown(page, minute).splitlines():
            if not line.startswith("#"):
                sample = line.replace("{", f'{{job="{job}",instance="yesterday",', 1)
                yield f"{sample} {start + MINUTE * minute}"
