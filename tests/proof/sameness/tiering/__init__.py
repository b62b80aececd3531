"""Makes random calls of vLLM's ``TieringOffloadingManager`` over vLLM's primary tier and over
kvoxide's, and compares them call by call, as :mod:`tests.proof.sameness.host` does.

:mod:`.tiers` has the other tiers, whose jobs end when the traffic says so. They note each call that
they get."""

from argparse import Namespace

from ..host import playing
from ..host.playing import Game
from .scenario import TieringScenario, random_scenario
from .sides import KvoxideTieringSide, VllmTieringSide
from .traffic import TieringTraffic

__all__ = ["TIERING", "main"]

TIERING = Game(
    "its primary tier",
    TieringScenario,
    random_scenario,
    (VllmTieringSide, KvoxideTieringSide),
    TieringTraffic,
)


def main(arguments: Namespace) -> int:
    """Run the command."""
    return playing.main(arguments, TIERING)
