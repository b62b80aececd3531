"""The suite of the verification that runs vLLM's scheduler over kvoxide's manager and over vLLM's
own."""

from typing import Any, Final

from kvoxide.lab.verify.managers.printing import readable
from kvoxide.lab.verify.schedulers.comparison import Comparison, Ended
from kvoxide.lab.verify.schedulers.plan import random_plan
from kvoxide.lab.verify.schedulers.twins import Difference
from kvoxide.lab.verify.suite import Covered, FirstDifference

STEPS_PER_UNIT: Final = 30


class Schedulers:
    name = "schedulers"

    def play(self, seed: int, family: str) -> Covered:
        return self._play(seed, family, STEPS_PER_UNIT)

    def shrunk(self, found: FirstDifference) -> FirstDifference:
        return found

    def play_again(self, document: dict[str, Any]) -> FirstDifference | None:
        try:
            self._play(int(document["seed"]), str(document["family"]), int(document["step"]))
        except FirstDifference as found:
            return found
        return None

    def _play(self, seed: int, family: str, num_steps: int) -> Covered:
        comparison = Comparison(random_plan(seed, (family,)))
        try:
            while comparison.num_steps < num_steps:
                comparison.run_step()
        except Ended:
            pass
        except Difference as difference:
            place = {"part": self.name, "seed": seed, "family": family, "step": difference.step}
            answers = readable(difference.reference), readable(difference.other)
            call = f"{difference.what} in step {difference.step} of vLLM's scheduler"
            document = {**place, "call": call, "reference": answers[0], "other": answers[1]}
            covered = Covered(comparison.num_calls)
            raise FirstDifference(call, *answers, document, covered) from None
        return Covered(comparison.num_calls)
