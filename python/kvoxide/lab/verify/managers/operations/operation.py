"""The operations of a scheduler on its manager. Each operation is data that can be printed and
replayed.

An operation states an intention. ``run`` adapts it to the present state. ``applies`` returns
whether it makes sense at all. So a list of operations still runs if some are removed.
"""

from dataclasses import dataclass
from typing import Any

from kvoxide.lab.verify.managers.printing import fields_that_matter
from kvoxide.lab.verify.managers.prompts import Segment
from kvoxide.lab.verify.managers.world import RequestModel, World


class Operation:
    def applies(self, world: World) -> bool:
        return True

    def run(self, world: World) -> None:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"operation": type(self).__name__, **fields_that_matter(self)}


@dataclass(frozen=True)
class OfRequest(Operation):
    request: str

    def applies(self, world: World) -> bool:
        model = world.requests.get(self.request)
        return model is not None and self.fits(world, model)

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.holds_blocks

    def run(self, world: World) -> None:
        self.run_for(world, world.requests[self.request])

    def run_for(self, world: World, model: RequestModel) -> None:
        raise NotImplementedError


def operation_from_json(fields: dict[str, Any]) -> Operation:
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields.items()
        if name != "operation"
    }
    if "prompt" in arguments:
        arguments["prompt"] = tuple(Segment(*segment) for segment in arguments["prompt"])
    classes = {cls.__name__: cls for cls in _subclasses(Operation)}
    return classes[fields["operation"]](**arguments)


def _subclasses(base: type[Operation]) -> list[type[Operation]]:
    direct = base.__subclasses__()
    return [*direct, *(cls for subclass in direct for cls in _subclasses(subclass))]
