"""The suite of the verification that compares kvoxide's adapter with vLLM's own manager."""

import json
from collections import Counter
from typing import Any, Final

from kvoxide.lab.verify import installed
from kvoxide.lab.verify.managers.coverage import Coverage
from kvoxide.lab.verify.managers.runner import (
    DifferenceFound,
    Reproduction,
    Sides,
    play,
    play_recorded,
    recording_from,
)
from kvoxide.lab.verify.managers.scenarios import FAMILIES, Group, Scenario
from kvoxide.lab.verify.managers.shrink import shrink
from kvoxide.lab.verify.managers.sides import AdapterDriver, VllmDriver
from kvoxide.lab.verify.suite import Covered, FirstDifference

SIDES: Final = Sides(VllmDriver, AdapterDriver)
CALLS_PER_UNIT: Final = 250
SECONDS_TO_SHRINK: Final = 20.0


class Managers:
    name = "managers"

    def play(self, seed: int, family: str) -> Covered:
        scenario = installed.fitted(FAMILIES[family](seed))
        try:
            return _covered(scenario, play(scenario, SIDES, CALLS_PER_UNIT))
        except DifferenceFound as found:
            covered = _covered(scenario, found.coverage)
            raise self._difference(found.reproduction, covered) from None

    def shrunk(self, found: FirstDifference) -> FirstDifference:
        again = self._reproduction(found.document)
        if again is None:
            return found
        return self._difference(shrink(again, SIDES, SECONDS_TO_SHRINK), found.covered)

    def play_again(self, document: dict[str, Any]) -> FirstDifference | None:
        again = self._reproduction(document)
        return None if again is None else self._difference(again, Covered())

    def _reproduction(self, document: dict[str, Any]) -> Reproduction | None:
        scenario, operations = recording_from(document)
        difference = play_recorded(scenario, operations, SIDES)
        if difference is None:
            return None
        return Reproduction(scenario, tuple(operations), difference)

    def _difference(self, reproduction: Reproduction, covered: Covered) -> FirstDifference:
        document = reproduction.document()
        call = f"{document['call']}: {document['aspect']} differs"
        document = json.loads(json.dumps({"part": self.name, **document}))
        return FirstDifference(call, document["reference"], document["other"], document, covered)


def _covered(scenario: Scenario, coverage: Coverage) -> Covered:
    kinds = {_engine_kind(group) for group in scenario.groups}
    return Covered(coverage.num_calls, Counter(dict.fromkeys(kinds, coverage.num_calls)))


def _engine_kind(group: Group) -> str:
    return "mamba_none" if group.kind == "mamba" and group.mamba_mode == "none" else group.kind
