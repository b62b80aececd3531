"""Describe the outcomes of an experiment: rows for JSON, and hit shares."""

from collections.abc import Sequence
from typing import Any

from kvoxide.lab.replay.results.curves import HitShares, over_quantity
from kvoxide.lab.replay.results.outcome_records import outcome_record
from kvoxide.lab.replay.run import Experiment, Outcome


def experiment_rows(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A JSON value per run: its policy, the quantity under the experiment's key, its counts."""
    return [{experiment.key: _quantity(o), **outcome_record(o)} for o in outcomes]


def experiment_shares(experiment: Experiment, outcomes: Sequence[Outcome]) -> HitShares:
    """The hit share of the counted requests, over the experiment's quantity."""
    return over_quantity(outcomes, _quantity, experiment.xs, experiment.x_name)


def _quantity(outcome: Outcome) -> int:
    return outcome.run.workload.quantity
