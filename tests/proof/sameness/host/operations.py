"""Calls of the manager, stored so that they can run again.

Keys and requests are numbers (:func:`.scenario.key_of`). A transfer is named by the position of its
operation, so that later operations can be left out.
"""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from .scenario import key_of
from .sides import Side

Answer = Any
COLLECTIONS: dict[str, Callable[[list[bytes]], Collection[bytes]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "keys": lambda keys: dict.fromkeys(keys).keys(),
}


@dataclass(frozen=True)
class Operation:
    """A call. ``run`` is called with each side, and with the arguments of both."""

    needs: ClassVar[tuple[str, ...]] = ()

    def given(self) -> Any:
        """Return the arguments that both sides get. They are the same objects, because a set has an
        order of its own."""
        keys = [key_of(number) for number in getattr(self, "keys", ())]
        return COLLECTIONS[getattr(self, "collection", "list")](keys)

    def applies(self, side: Side) -> bool:
        request = getattr(self, "request", None)
        return request is None or request in side.contexts

    def run(self, side: Side, given: Any) -> Answer:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"operation": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class Start(Operation):
    """Starts a request. Unless ``is_announced``, its context exists without a call of the
    manager."""

    new_request: int
    positions: tuple[tuple[int, int], ...]
    is_announced: bool = True

    def applies(self, side: Side) -> bool:
        return self.new_request not in side.contexts

    def run(self, side: Side, given: Any) -> Answer:
        side.add_request(self.new_request, f"request-{self.new_request % 5}")
        context = side.contexts[self.new_request]
        for key, position in self.positions:
            context.set_offload_key_position(key_of(key), position)
        return side.manager.on_new_request(context) if self.is_announced else None


@dataclass(frozen=True)
class SetPosition(Operation):
    request: int
    key: int
    position: int

    def run(self, side: Side, given: Any) -> Answer:
        side.contexts[self.request].set_offload_key_position(key_of(self.key), self.position)


@dataclass(frozen=True)
class LookUp(Operation):
    request: int
    keys: tuple[int, ...]

    def run(self, side: Side, given: Any) -> Answer:
        return [side.manager.lookup(key, side.contexts[self.request]) for key in given]


@dataclass(frozen=True)
class PrepareStore(Operation):
    request: int
    keys: tuple[int, ...]
    collection: str = "list"

    def run(self, side: Side, given: Any) -> Answer:
        output = side.manager.prepare_store(given, side.contexts[self.request])
        if output is None:
            return None
        chunks = output.store_spec.chunk_ids
        return output.keys_to_store, chunks.dtype.name, chunks.tolist(), output.evicted_keys


@dataclass(frozen=True)
class CompleteStore(Operation):
    request: int
    keys: tuple[int, ...]
    success: bool = True
    collection: str = "list"

    def run(self, side: Side, given: Any) -> Answer:
        return side.manager.complete_store(given, side.contexts[self.request], self.success)


@dataclass(frozen=True)
class PrepareLoad(Operation):
    request: int
    keys: tuple[int, ...]
    collection: str = "list"

    def run(self, side: Side, given: Any) -> Answer:
        chunks = side.manager.prepare_load(given, side.contexts[self.request]).chunk_ids
        return chunks.dtype.name, chunks.tolist()


@dataclass(frozen=True)
class CompleteLoad(Operation):
    request: int
    keys: tuple[int, ...]
    collection: str = "list"

    def run(self, side: Side, given: Any) -> Answer:
        return side.manager.complete_load(given, side.contexts[self.request])


@dataclass(frozen=True)
class Touch(Operation):
    request: int
    keys: tuple[int, ...]
    collection: str = "list"

    def run(self, side: Side, given: Any) -> Answer:
        return side.manager.touch(given, side.contexts[self.request])


@dataclass(frozen=True)
class End(Operation):
    request: int

    def run(self, side: Side, given: Any) -> Answer:
        return side.manager.on_request_finished(side.contexts[self.request])


@dataclass(frozen=True)
class Reset(Operation):
    def run(self, side: Side, given: Any) -> Answer:
        return side.manager.reset_cache()


@dataclass(frozen=True)
class HandOver(Operation):
    """Sets an attribute of the policy, so that the manager is vLLM's from then on."""

    def run(self, side: Side, given: Any) -> Answer:
        side.primary._policy.anything = None


@dataclass(frozen=True)
class TakeEvents(Operation):
    """Takes events, at most ``most`` of them. None takes all."""

    most: int | None = None

    def run(self, side: Side, given: Any) -> Answer:
        told = []
        if self.most != 0:
            for event in side.manager.take_events():
                told.append(vars(event))
                if len(told) == self.most:
                    break
        return told


@dataclass(frozen=True)
class GetStats(Operation):
    def run(self, side: Side, given: Any) -> Answer:
        stats = side.manager.get_stats()
        return stats if stats is None else vars(stats)


def operation_from_json(document: dict[str, Any]) -> Operation:
    """Return the operation of a JSON object. Raises KeyError and TypeError for anything else."""
    classes = {cls.__name__: cls for cls in Operation.__subclasses__()}
    cls = classes[document["operation"]]
    values = {field.name: _tuples(document[field.name]) for field in fields(cls)}
    return cls(**values)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
