"""``--html``: everything about a replay on one page that needs no network."""

from kvoxide.replay.page.option import html_option
from kvoxide.replay.page.writing import experiment_page, replay_page

__all__ = ["experiment_page", "html_option", "replay_page"]
