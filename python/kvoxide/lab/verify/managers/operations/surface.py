"""Uses of the pool's own attributes by tests and connectors."""

from dataclasses import dataclass

from kvoxide.lab.verify.managers.operations.inside import InsideOfRequest
from kvoxide.lab.verify.managers.operations.requests import Admit, Advance
from kvoxide.lab.verify.managers.world import RequestModel, World


@dataclass(frozen=True)
class IndexViewed(InsideOfRequest):
    """Reads the mapping inside the pool's index, as a whole and by one of the request's hashes."""

    hash_index: int = 0

    def fits(self, world: World, model: RequestModel) -> bool:
        return bool(model.block_hashes)

    def run_for(self, world: World, model: RequestModel) -> None:
        block_hash = model.block_hashes[self.hash_index % len(model.block_hashes)]
        world.call_inside("_cache of the index", lambda d: d.index(block_hash))


@dataclass(frozen=True)
class Starve(InsideOfRequest):
    """Sets the pool's number of free blocks to nearly none while a request needs some."""

    num_free: int = 0

    def run_for(self, world: World, model: RequestModel) -> None:
        if self.num_free >= world.num_free_blocks():
            return
        world.call_inside("num_free_blocks is set", lambda d: d.set_num_free(self.num_free))
        for operation in (Admit(self.request, 8), Advance(self.request, 8)):
            if operation.applies(world):
                operation.run(world)
                break
        world.call_inside("num_free_blocks is set back", lambda d: d.set_num_free(None))
