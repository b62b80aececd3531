"""Reads what happened to the tokens of prompts. All numbers of a report are totals since the
start."""

from typing import Any

from kvoxide.vllm.metrics.report import Distribution, Values


def add_outcomes(values: Values, engine: Any) -> None:
    """Add the outcomes, evictions and reuse gaps that an engine reports."""
    report = engine.outcome_report()
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
