"""Both managers with the same traffic, and the actions of another user on them, in turns."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kvoxide.lab.bench.clock import Samples, collector_paused, timed
from kvoxide.lab.bench.layouts import LAYOUTS
from kvoxide.lab.bench.prompts import make_prompt
from kvoxide.lab.bench.sides import KVOXIDE, VLLM, AdapterSide, StockSide

from benches.neighbours.rows import Measured

BLOCK_SIZE: Final = 16
POOLS: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Sizes in blocks."""
PROMPTS: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Lengths in tokens."""
ROUNDS: Final = 9
FEW_BLOCKS: Final = 10_000
"""In pools up to this size, managers are constructed anew for each round of a first read."""

Act = Callable[[Any], object]
Prepare = Callable[[Any], Act]


class Pair:
    """vLLM's manager and kvoxide's, over a pool of ``num_blocks``. A request of ``num_tokens``
    holds some of them; the blocks of another are cached and free."""

    def __init__(self, num_blocks: int, num_tokens: int) -> None:
        """Construct both, and serve the requests."""
        self.num_blocks = num_blocks
        self.num_tokens = num_tokens
        self._sides: dict[str, Any] = {}
        self.renew()

    def renew(self) -> None:
        """Construct both managers anew, so that no block has been read."""
        self._sides.clear()
        sizes = (LAYOUTS["full"], self.num_blocks, self.num_tokens + BLOCK_SIZE, 8192)
        for name, side in ((VLLM, StockSide), (KVOXIDE, AdapterSide)):
            self._sides[name] = side(*sizes)
            self._fill(self._sides[name])

    def _fill(self, side: Any) -> None:
        for name in ("gone", "held"):
            prompt = make_prompt(name, self.num_tokens, BLOCK_SIZE)
            side.request = side.new_request(name, prompt)
            side.manager.allocate_slots(side.request, self.num_tokens)
            if name == "gone":
                side.manager.free(side.request)

    def measured(
        self, name: str, prepare: Prepare, *, per: int, is_first: bool = False
    ) -> Measured:
        """Return the time of the action that ``prepare`` returns for a side, divided by ``per``.
        With ``is_first``, the managers are new and no block has been read."""
        samples = Samples()
        rounds = ROUNDS
        if is_first:
            rounds = 3 if self.num_blocks <= FEW_BLOCKS else 1
        with collector_paused():
            for _ in range(rounds):
                if is_first:
                    self.renew()
                for side_name, side in self._sides.items():
                    act = prepare(side)
                    samples.add(name, side_name, timed(act, side)[0] / per)
        stock, native = (samples.microseconds(name, side) or 0.0 for side in (VLLM, KVOXIDE))
        return Measured(name, self.num_blocks, self.num_tokens, stock, native)

    @classmethod
    def of_pool(cls, num_blocks: int) -> "Pair":
        """Return a pair with a pool of ``num_blocks``, an eighth of them held."""
        return cls(num_blocks, num_blocks * BLOCK_SIZE // 8)

    @classmethod
    def of_prompt(cls, num_tokens: int) -> "Pair":
        """Return a pair with a prompt of ``num_tokens``, in a pool that is a bit larger than it
        needs."""
        return cls(2 * num_tokens // BLOCK_SIZE + 1_000, num_tokens)

    def both(self, name: str, prepare: Prepare, *, per: int) -> Iterator[Measured]:
        """Yield the time of the first read and of later ones."""
        yield self.measured(f"{name}, first", prepare, per=per, is_first=True)
        yield self.measured(name, prepare, per=per)
