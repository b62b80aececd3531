"""Write everything about a replay on one page that needs no network (``--html``).

``contents`` chooses the figures and tables, ``figures`` draws them, and ``template`` writes HTML.
"""

from kvoxide.lab.replay.page.writing import experiment_page, replay_page

__all__ = [
    "experiment_page",
    "replay_page",
]
