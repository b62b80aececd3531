"""Draws calls: requests that share prefixes, transfers in any order, failures, resets, misuse."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from .operations import (
    CompleteLoad,
    CompleteStore,
    End,
    GetStats,
    HandOver,
    LookUp,
    Operation,
    PrepareLoad,
    PrepareStore,
    Reset,
    SetPosition,
    Start,
    TakeEvents,
    Touch,
)
from .scenario import Scenario, key_of, number_of
from .world import World

NUM_RUNNING = 4
PROMPT_BLOCKS = 30
SHARED_BLOCKS = 4
TOKENS_PER_BLOCK = 16
MISUSE = 0.0005

Transfer = tuple[int, tuple[int, ...]]
Draw: TypeAlias = Callable[[World], Operation | None]


class Traffic:
    def __init__(self, scenario: Scenario, beginning: int) -> None:
        self._scenario = scenario
        self._rng = Random(f"{scenario.seed}-{beginning}")
        self._next_request = 0
        self._prompts: dict[int, int] = {}
        self._offered: dict[int, set[int]] = {}
        self._running: list[int] = []
        self._ended: list[int] = []
        self._stores: list[Transfer] = []
        self._loads: list[Transfer] = []

    def next(self, world: World) -> Operation:
        if len(self._running) < NUM_RUNNING:
            return self._start()
        draws = self._draws()
        while True:
            (draw,) = self._rng.choices(list(draws), list(draws.values()))
            operation = draw(world)
            if operation is not None:
                return operation

    def _draws(self) -> dict[Draw, float]:
        """Return the weight of each draw."""
        return {
            self._prepare_store: 28,
            self._complete_store: 20,
            self._prepare_load: 12,
            self._complete_load: 13,
            self._look_up: 3,
            self._touch: 2,
            self._end: 6,
            self._reset: 0.3,
            self._events: 4,
            self._stats: 3,
            self._position: 1,
            self._foreign: 1,
            self._again: 2,
            self._misuse: 100 * MISUSE,
            self._hand_over: 0.3 * self._scenario.hands_over,
        }

    def answered(self, operation: Operation, answer: object) -> None:
        """Note the transfer that an operation began."""
        if isinstance(operation, PrepareStore) and answer is not None:
            keys: list[bytes] = answer[0]  # type: ignore[index]
            stored = tuple(number for number in operation.keys if key_of(number) in set(keys))
            if stored:
                self._stores.append((operation.request, stored))
        elif isinstance(operation, PrepareLoad):
            self._loads.append((operation.request, operation.keys))

    def _start(self) -> Operation:
        rng, request = self._rng, self._next_request
        self._next_request += 1
        self._prompts[request] = rng.randint(0, 6) if rng.random() < 0.6 else request + 10
        self._offered[request] = set()
        self._running.append(request)
        positions = [
            (self._key(request, block, group), self._position_of(block))
            for block in range(PROMPT_BLOCKS)
            for group in range(self._scenario.num_groups)
            if rng.random() < self._scenario.share_of_positions
        ]
        return Start(request, tuple(positions), is_announced=rng.random() < 0.95)

    def _key(self, request: int, block: int, group: int) -> int:
        """Return the key of a block. The first blocks are the same in every prompt."""
        own = (self._prompts[request] + 1) * 1_000
        return number_of(block if block < SHARED_BLOCKS else own + block, group)

    def _position_of(self, block: int) -> int:
        return TOKENS_PER_BLOCK * (block + 1)

    def _some_keys(self, request: int) -> tuple[int, ...]:
        rng = self._rng
        first = rng.randrange(PROMPT_BLOCKS - 6)
        last = min(first + rng.randint(1, 8), PROMPT_BLOCKS)
        groups = rng.sample(
            range(self._scenario.num_groups), rng.randint(1, self._scenario.num_groups)
        )
        keys = [
            self._key(request, block, group) for group in groups for block in range(first, last)
        ]
        if rng.random() < 0.1:
            rng.shuffle(keys)
        return tuple(keys)

    def _collection(self) -> str:
        return self._rng.choice(["list", "list", "list", "tuple", "set", "keys"])

    def _prepare_store(self, world: World) -> Operation:
        request = self._rng.choice(self._running)
        keys = self._some_keys(request)
        self._offered[request].update(keys)
        return PrepareStore(request, keys, self._collection())

    def _complete_store(self, world: World) -> Operation | None:
        if not self._stores:
            return None
        request, keys = self._taken(self._stores)
        if self._rng.random() < 0.1 and len(keys) > 1:
            half = len(keys) // 2
            self._stores.append((request, keys[half:]))
            keys = keys[:half]
        return CompleteStore(request, keys, self._rng.random() < 0.8, self._collection())

    def _taken(self, transfers: list[Transfer]) -> Transfer:
        place = self._rng.randrange(len(transfers))
        # Sometimes it is completed twice.
        is_store = transfers is self._stores
        keep = is_store and self._rng.random() < 0.05
        return transfers[place] if keep else transfers.pop(place)

    def _prepare_load(self, world: World) -> Operation | None:
        request = self._rng.choice(self._running)
        context = world.reference.contexts[request]
        ready = [
            key
            for key in self._some_keys(request)
            if world.reference.primary.lookup(key_of(key), context).name == "HIT"
        ]
        if ready and self._rng.random() < 0.03:
            ready.append(ready[0])
        return PrepareLoad(request, tuple(ready), "list")

    def _complete_load(self, world: World) -> Operation | None:
        if not self._loads:
            return None
        request, keys = self._taken(self._loads)
        is_set = len(set(keys)) == len(keys)
        return CompleteLoad(request, keys, self._collection() if is_set else "list")

    def _look_up(self, world: World) -> Operation:
        request = self._rng.choice(self._running)
        return LookUp(request, self._some_keys(request))

    def _touch(self, world: World) -> Operation:
        request = self._rng.choice(self._running)
        return Touch(request, self._some_keys(request), self._collection())

    def _end(self, world: World) -> Operation:
        if self._ended and self._rng.random() < 0.1:
            return End(self._rng.choice(self._ended))
        request = self._running.pop(self._rng.randrange(len(self._running)))
        self._ended.append(request)
        return End(request)

    def _reset(self, world: World) -> Operation:
        self._loads.clear()
        if self._rng.random() < 0.7:
            self._stores.clear()
        return Reset()

    def _hand_over(self, world: World) -> Operation:
        return HandOver()

    def _events(self, world: World) -> Operation:
        return TakeEvents(self._rng.choice([None, None, None, 0, 1, 2]))

    def _stats(self, world: World) -> Operation:
        return GetStats()

    def _position(self, world: World) -> Operation:
        request = self._rng.choice(self._running)
        block = self._rng.randrange(PROMPT_BLOCKS)
        key = self._key(request, block, self._rng.randrange(self._scenario.num_groups))
        return SetPosition(request, key, self._position_of(block) - self._rng.choice([0, 0, 8]))

    def _foreign(self, world: World) -> Operation:
        """Complete a store that was never begun, or that belongs to another request."""
        request = self._rng.choice(self._running)
        return CompleteStore(request, self._some_keys(request), self._rng.random() < 0.8)

    def _again(self, world: World) -> Operation | None:
        """Let an ended request offer or load keys that it saw."""
        request = self._rng.choice(self._ended) if self._ended else None
        if request is None or not self._offered[request]:
            return None
        offered = sorted(self._offered[request])
        keys = tuple(self._rng.sample(offered, self._rng.randint(1, min(4, len(offered)))))
        return PrepareStore(request, keys)

    def _misuse(self, world: World) -> Operation:
        request = self._rng.choice(self._running)
        keys = (number_of(999_999, 0), *self._some_keys(request))
        return self._rng.choice([PrepareLoad(request, keys), CompleteLoad(request, keys)])
