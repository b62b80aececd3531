"""Reads what happened to the tokens of prompts.

The source is an object with ``outcome_report()``: the engine, or with vLLM's own manager the object
that :data:`ATTRIBUTE` of the scheduler holds. All numbers of a report are totals since the start.
"""

from typing import Any, Final

from kvoxide.vllm.metrics.report import Distribution, Values

ATTRIBUTE: Final = "_kvoxide_outcomes"


def start(engine: Any) -> None:
    """Let an engine of kvoxide's manager classify prompts from its first request on."""
    if hasattr(engine, "observe_outcomes"):
        engine.observe_outcomes()


def add_outcomes(values: Values, source: Any) -> None:
    """Add the outcomes, evictions and reuse gaps that ``source`` reports."""
    if not hasattr(source, "outcome_report"):
        return
    report = source.outcome_report()
    if report is None:
        return
    for outcome, tokens in report.outcomes.items():
        values.count("kvoxide_prompt_tokens_total", tokens, outcome=outcome)
    for kind, blocks in report.evictions.items():
        values.count("kvoxide_evictions_total", blocks, kind=kind)
    gaps = Distribution(
        tuple(report.reuse_gap_bounds), tuple(report.reuse_gap_counts), report.reuse_gap_sum
    )
    values.distribute("kvoxide_evict_reuse_gap_seconds", gaps)
