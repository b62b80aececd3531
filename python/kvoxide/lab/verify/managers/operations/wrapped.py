"""Replaces methods and fields of living objects, as other code may."""

from dataclasses import dataclass

from kvoxide.lab.verify.managers.operations.inside import Inside
from kvoxide.lab.verify.managers.world import World


def _check(world: World, after: str) -> None:
    world.check_state(after)
    if world.are_both_vllms_own:
        world.call_inside("memory of the groups", lambda d: d.remembered())


@dataclass(frozen=True)
class WrapMethod(Inside):
    """Replaces a method by a wrapper that notes its calls, from now on."""

    owner: str
    name: str

    def is_possible(self, world: World) -> bool:
        return self.owner != "group" or bool(world.scenario.groups)

    def run(self, world: World) -> None:
        world.check_state("before a method is wrapped")
        world.call_inside("a method is wrapped", lambda d: d.wrap(self.owner, self.name))
        _check(world, "a method is wrapped")
        world.coverage.seen[f"wrapped {self.owner}.{self.name}"] += 1


@dataclass(frozen=True)
class SetField(Inside):
    """Gives another value to a field that vLLM reads at each call."""

    owner: str
    name: str
    value: int | bool | None

    def run(self, world: World) -> None:
        world.check_state("before a field is set")
        world.call_inside(
            "a field is set", lambda d: d.set_field(self.owner, self.name, self.value)
        )
        _check(world, "a field is set")
        world.coverage.seen[f"set {self.owner}.{self.name}"] += 1
