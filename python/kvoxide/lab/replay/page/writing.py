"""Pages of commands, as the bytes of a file."""

from kvoxide.lab.replay.results import HitShares
from kvoxide.lab.replay.run import Comparison, Incomplete


def replay_page(comparison: Comparison) -> bytes:
    """Everything but the single requests, as HTML."""
    # Imported here: plotly and jinja2 are there only with kvoxide[html].
    from kvoxide.lab.replay.page.contents import replay_contents
    from kvoxide.lab.replay.page.template import html_document

    return html_document(replay_contents(comparison))


def experiment_page(
    shares: HitShares, settings: str, num_missing: int = 0, failure: Incomplete | None = None
) -> bytes:
    """Hit shares of an experiment, as HTML; ``settings`` are its groups and its pool, and
    ``failure`` is why ``num_missing`` runs could not be done."""
    from kvoxide.lab.replay.page.contents import experiment_contents
    from kvoxide.lab.replay.page.template import html_document

    return html_document(experiment_contents(shares, settings, num_missing, failure))
