"""Tests of a host tier that decides together with a standalone manager, in a small engine that
notices wrong copies."""

import gc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from kvoxide import (
    BlockHasher,
    HostMemory,
    HostStep,
    HostTier,
    HostTransfer,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheManager,
    Policy,
    Request,
    RequestError,
    RequestStatus,
    Simulation,
    Trace,
)

from tests.package.api.toy_engine import STEP_TOKENS, ToyEngine

SIZE = 8
FULL = KVCacheGroupSpec("full_attention", SIZE)
WINDOW = KVCacheGroupSpec("sliding_window", SIZE, sliding_window=20)
LOCAL = KVCacheGroupSpec("chunked_local_attention", SIZE, attention_chunk_size=32)
STATES = KVCacheGroupSpec("mamba", 2 * SIZE)
ADAPTIVE = Policy(retention="adaptive")
GROUPS = {
    "full": [FULL],
    "windows": [FULL, WINDOW],
    "wide blocks": [FULL, KVCacheGroupSpec("sliding_window", 2 * SIZE, sliding_window=40)],
    "local": [FULL, LOCAL],
    "states": [STATES, FULL],
}


def chats(seed: int, num: int, *, longest: int = 300) -> Iterator[tuple[list[int], list[int]]]:
    """Yield prompts and answers. Each prompt continues one of twelve chats."""
    rng = Random(seed)

    def text(num_tokens: int) -> list[int]:
        return [rng.randrange(1000) for _ in range(num_tokens)]

    texts = [text(48) for _ in range(12)]
    for _ in range(num):
        at = rng.randrange(len(texts))
        prompt, answer = texts[at] + text(rng.randrange(1, 30)), text(rng.randrange(1, 20))
        yield prompt, answer
        chat = prompt + answer
        texts[at] = chat if len(chat) < longest else text(48)


def serve(engine: ToyEngine, traffic: Iterator[tuple[list[int], list[int]]], at_once: int) -> None:
    hasher = BlockHasher(engine.manager.hash_block_size)
    requests = (
        (Request(str(number), prompt, block_hasher=hasher), answer)
        for number, (prompt, answer) in enumerate(traffic)
    )
    engine.serve(requests, at_once)


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("policy", [Policy(), ADAPTIVE], ids=["default", "adaptive"])
@pytest.mark.parametrize("groups", GROUPS)
def test_every_loaded_block_has_the_content_that_its_request_wants(
    groups: str, policy: Policy, delay: int
) -> None:
    specs = GROUPS[groups]
    engine = ToyEngine(60 * len(specs), 200 * len(specs), specs, policy=policy, delay=delay)
    serve(engine, chats(1, 500), at_once=6)
    assert engine.num_loaded > 10_000
    assert len(specs) == 1 or engine.num_preempted > 5
    engine.manager.check_invariants()
    stored, loaded, _ = engine.tier.num_transferred_chunks
    assert stored > 1000
    assert loaded > 1000
    assert engine.tier.num_loading_keys == 0
    assert engine.manager.block_pool.get_usage() == 0.0


class SkipsBefore(ToyEngine):
    """Completes the stores that a step has to wait for without a copy."""

    def _end(self, transfers: Any) -> None:
        for transfer in transfers:
            if transfer.request_id is None and self.is_before(transfer):
                self.tier.complete(transfer)
            else:
                super()._end([transfer])

    def is_before(self, transfer: HostTransfer) -> bool:
        """Return whether the pool has allocated a block of a store again."""
        hashes = [self.manager.block_pool.blocks[at].block_hash for at in transfer.block_ids]
        return hashes != transfer.keys


def test_a_copy_that_is_left_out_is_noticed() -> None:
    engine = SkipsBefore(60, 200, [FULL])
    with pytest.raises(AssertionError):
        serve(engine, chats(1, 1000), at_once=6)


@pytest.mark.parametrize("num_chunks", [0, 1, 3])
def test_a_tier_smaller_than_a_prompt_serves_right_content(num_chunks: int) -> None:
    engine = ToyEngine(60, num_chunks, [FULL])
    serve(engine, chats(2, 300), at_once=3)
    assert len(engine.tier.get_chunks()) <= num_chunks
    assert engine.manager.block_pool.get_usage() == 0.0


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("groups", ["full", "windows"])
def test_hits_are_those_of_a_replay_and_more_than_lru(groups: str, at_once: int) -> None:
    specs = GROUPS[groups]
    num_blocks, num_chunks = 130 * len(specs), 150 * len(specs)
    traffic = [(prompt, [2000 + len(prompt)]) for prompt, _ in chats(3, 2000)]
    trace = Trace()
    for prompt, _ in traffic:
        trace.push_prompt(prompt, 1)

    def replayed(policy: Any) -> int:
        memory = HostMemory(num_chunks, 4096, eviction_policy=policy)
        options: Any = {"concurrency": at_once, "max_batched_tokens": STEP_TOKENS}
        run = Simulation(trace, specs, num_blocks, policy=Policy(), host_memory=memory, **options)
        return run.run().hit_tokens

    engine = ToyEngine(num_blocks, num_chunks, specs)
    serve(engine, iter(traffic), at_once)
    hits = sum(engine.hits.values())
    # Loads take no time in the replay, and a step here.
    assert abs(hits / replayed("adaptive") - 1) < 0.03
    assert hits > 1.1 * replayed("lru")


def request(name: str, first: int, num_tokens: int = 4 * SIZE) -> Request:
    return Request(name, range(first, first + num_tokens), block_hasher=BlockHasher(SIZE))


class Small:
    """A pool of eight blocks, and CPU memory."""

    def __init__(self, num_chunks: int = 16, policy: Policy | None = None, **options: Any) -> None:
        self.manager = KVCacheManager(KVCacheConfig(9, [FULL]), 256, policy=policy)
        self.tier = HostTier(num_chunks, "adaptive", **options)
        self.tier.decide_with(self.manager)

    def compute(self, name: str, first: int) -> None:
        """Serve a prompt of four blocks, and complete the stores."""
        served = request(name, first)
        assert self.manager.allocate_slots(served, 4 * SIZE) is not None
        self.step()
        self.manager.free(served)

    def fill(self, first: Request) -> HostStep:
        """Fill the pool with a request that ends and one that runs. Return the step after."""
        for filling in (first, request("second", 1000)):
            assert self.manager.allocate_slots(filling, 32) is not None
        assert (len(self.tier.prepare_step().during), self.tier.num_pending_chunks) == (0, 0)
        self.manager.free(first)
        return self.tier.prepare_step()

    def step(self) -> list[HostTransfer]:
        """Complete the stores of a step, and return its loads."""
        step = self.tier.prepare_step()
        for store in [*step.waits_for, step.before, step.during]:
            self.tier.complete(store)
        return step.loads

    def look_up(self, asked: Request) -> tuple[int, int] | None:
        blocks, num_hit, _ = self.manager.get_computed_blocks(asked)
        found = self.tier.lookup_request(asked, blocks, num_hit)
        if found is None:
            return None
        self.blocks, *numbers = found
        return numbers[0], numbers[1]

    def load(self, asked: Request) -> HostTransfer:
        """Look a request up, start its load, and return it."""
        while (found := self.look_up(asked)) is None:
            assert self.step() == []
        self.allocate(asked, *found)
        self.tier.start_load(asked)
        (load,) = self.step()
        return load

    def allocate(self, asked: Request, num_hit: int, num_loaded: int) -> None:
        new = self.manager.allocate_slots(
            asked,
            0,
            num_hit,
            self.blocks,
            num_external_computed_tokens=num_loaded,
            delay_cache_blocks=True,
        )
        assert new is not None


def with_evicted_prompt(**options: Any) -> Small:
    """Return a world in which the first prompt is in CPU memory alone."""
    small = Small(**options)
    for number in range(3):
        small.compute(str(number), 1000 * number)
    return small


def test_a_load_names_its_blocks_chunks_keys_and_request() -> None:
    small, asked = with_evicted_prompt(), request("again", 0, 40)
    load = small.load(asked)
    assert (load.request_id, len(load), repr(load)) == (
        "again",
        4,
        "HostTransfer(load of 4 chunks for request 'again')",
    )
    assert load.block_ids.dtype == load.chunk_ids.dtype == load.group_ids.dtype == np.int32
    assert load.block_ids.tolist() == small.manager.get_block_ids("again")[0]
    assert load.group_ids.tolist() == [0] * 4
    assert load.keys == [one + bytes(4) for one in asked.block_hashes[:4]]
    chunks = small.tier.get_chunks()
    assert [chunks[key] for key in load.keys] == [(at, 1) for at in load.chunk_ids.tolist()]
    assert small.look_up(request("other", 0, 40)) is None, "another request loads the same chunks"
    small.tier.complete(load)
    small.manager.cache_blocks(asked, 32)
    asked.num_computed_tokens = 32
    assert small.manager.allocate_slots(asked, 8) is not None
    assert small.manager.get_computed_blocks(request("other", 0, 40))[1] == 32


def test_stores_read_blocks_of_ended_requests_and_become_chunks() -> None:
    small, first = Small(enable_kv_cache_events=True), request("first", 0)
    step = small.fill(first)
    assert (step.waits_for, len(step.before), step.loads) == ([], 0, [])
    assert step.during.request_id is None
    assert step.during.keys[0] == first.block_hashes[3] + bytes(4), "the end of a prompt goes first"
    assert step.during.block_ids.tolist() == [4, 3]
    assert small.tier.lookup(step.during.keys[0]) == "hit_pending"
    small.tier.complete(step.during)
    assert [event.kind for event in small.tier.take_events()] == ["stored"]
    assert small.tier.lookup(step.during.keys[0]) == "hit"


def test_a_store_that_has_not_ended_is_waited_for_when_its_blocks_are_taken() -> None:
    small = Small()
    store = small.fill(request("first", 0)).during
    assert len(store) == 2
    assert small.tier.prepare_step().waits_for == []
    assert small.manager.allocate_slots(request("large", 5000), 32) is not None
    for _ in range(2):
        step = small.tier.prepare_step()
        assert step.waits_for[0] == store
        assert store not in step.waits_for[1:]
    small.tier.complete(store)
    assert store not in small.tier.prepare_step().waits_for


def test_a_failed_store_or_load_leaves_no_chunk() -> None:
    small = Small()
    store = small.fill(request("first", 0)).during
    small.tier.complete(store, success=False)
    assert {small.tier.lookup(key) for key in store.keys} == {"miss"}
    small = with_evicted_prompt()
    asked = request("again", 0, 40)
    load = small.load(asked)
    small.tier.complete(load, success=False)
    assert {small.tier.lookup(key) for key in load.keys} == {"miss"}
    assert small.tier.num_loading_keys == 0
    small.manager.free(asked)
    assert small.look_up(asked) == (0, 0)


def test_a_load_of_a_request_that_is_freed_before_the_step_is_dropped() -> None:
    small, asked = with_evicted_prompt(), request("again", 0, 40)
    while (found := small.look_up(asked)) is None:
        small.step()
    small.allocate(asked, *found)
    small.tier.start_load(asked)
    asked.status = RequestStatus.PREEMPTED
    small.manager.free(asked)
    assert small.look_up(asked) is None, "its load is open until the step"
    assert small.step() == []
    assert small.tier.num_loading_keys == 0
    assert len(small.load(asked)) == 4


def test_a_request_is_neither_computed_nor_freed_while_its_load_is_copied() -> None:
    small, asked = with_evicted_prompt(), request("again", 0, 40)
    load = small.load(asked)
    before = small.manager.state_digest()
    for use in (small.manager.cache_blocks, small.manager.allocate_slots):
        with pytest.raises(RequestError, match="load of request 'again' has not ended"):
            use(asked, 8)
    for free in (small.manager.free, small.manager.pop_blocks_for_free):
        with pytest.raises(RequestError, match="load of request 'again' is being copied"):
            free(asked)
    assert small.manager.state_digest() == before
    small.tier.complete(load)
    small.manager.cache_blocks(asked, 32)
    assert small.manager.get_computed_blocks(request("other", 0, 40))[1] == 32
    small.manager.free(asked)


LOSSES: dict[str, Callable[[Small, HostTransfer], None]] = {
    "a failure": lambda small, load: small.tier.complete(load, success=False),
    "a reset": lambda small, _: small.tier.reset(),
    "the tier's end": lambda small, _: small.tier.decide_alone(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_blocks_of_a_lost_load_are_not_cached_until_the_request_is_freed(loss: str) -> None:
    small, asked = with_evicted_prompt(), request("again", 0, 40)
    LOSSES[loss](small, small.load(asked))
    before = small.manager.state_digest()
    for use in (small.manager.cache_blocks, small.manager.allocate_slots):
        with pytest.raises(RequestError, match="its blocks are empty"):
            use(asked, 32)
    assert small.manager.state_digest() == before
    small.manager.free(asked)
    assert small.manager.get_computed_blocks(request("other", 0, 40))[1] == 0
    assert small.manager.allocate_slots(asked, 40) is not None
    assert small.manager.get_computed_blocks(request("other", 0, 40))[1] == 32


def test_a_load_needs_a_look_up_and_slots_and_chunks_that_are_still_there() -> None:
    small, asked = with_evicted_prompt(), request("again", 0, 40)
    while (found := small.look_up(asked)) is None:
        small.step()
    before = small.tier.get_chunks()
    with pytest.raises(RequestError, match="'again' has no empty blocks for its load"):
        small.tier.start_load(asked)
    new = small.manager.allocate_slots(asked, 8)
    assert new is not None
    with pytest.raises(RequestError, match="num_external_computed_tokens=32 and delay_cache_bl"):
        small.tier.start_load(asked)
    small.manager.free(asked)
    small.allocate(asked, *found)
    assert small.tier.get_chunks() == before
    small.tier.reset()
    with pytest.raises(RequestError, match="chunks of request 'again' were evicted after the l"):
        small.tier.start_load(asked)
    assert small.tier.num_loading_keys == 0
    assert small.step() == []


def test_a_reset_ends_open_transfers() -> None:
    small, asked = with_evicted_prompt(), request("again", 0, 40)
    load = small.load(asked)
    small.tier.reset()
    with pytest.raises(RequestError, match="the transfer is not open in this tier"):
        small.tier.complete(load)
    assert (small.tier.num_free_chunks, small.tier.num_loading_keys) == (16, 0)
    small.manager.free(asked)
    assert small.manager.reset_prefix_cache()
    assert small.look_up(asked) == (0, 0)
    for number in range(3):
        small.compute(str(number), 1000 * number)
    assert len(small.load(asked)) == 4, "both fill again"


def test_transfers_of_another_tier_are_refused() -> None:
    small, other, asked = with_evicted_prompt(), with_evicted_prompt(), request("again", 0, 40)
    load = small.load(asked)
    assert load != other.load(request("again", 0, 40))
    with pytest.raises(RequestError, match="or the tier is another one"):
        other.tier.complete(load)
    small.tier.complete(load)


def test_a_request_that_skips_reading_loads_nothing() -> None:
    small = with_evicted_prompt()
    tokens = range(40)
    asked = Request("again", tokens, block_hasher=BlockHasher(SIZE), skip_reading_prefix_cache=True)
    assert small.look_up(asked) == (0, 0)


def test_a_manager_that_decides_alone_again_can_get_another_tier() -> None:
    small = with_evicted_prompt()
    small.tier.decide_alone()
    assert (small.tier.policy, small.tier.num_free_chunks) == ("adaptive", 16)
    with pytest.raises(RequestError, match="prepare_step needs a manager; call decide_with first"):
        small.tier.prepare_step()
    asked = request("again", 0)
    assert small.manager.allocate_slots(asked, 32) is not None
    small.tier.decide_with(KVCacheManager(KVCacheConfig(9, [FULL]), 256))
    assert len(small.tier.prepare_step().before) == 0


def test_the_end_of_a_tier_lets_its_manager_decide_alone() -> None:
    manager = KVCacheManager(KVCacheConfig(9, [FULL]), 256)
    first, second = HostTier(4, "adaptive"), HostTier(4, "adaptive")
    first.decide_with(manager)
    with pytest.raises(RequestError, match="a tier decides together with this manager already"):
        second.decide_with(manager)
    del first
    gc.collect()
    second.decide_with(manager)
    assert len(second.prepare_step().during) == 0


def test_answers_of_preempted_requests_are_kept() -> None:
    """Answers that never come back are given up: their blocks are evicted first."""

    def num_kept(status: RequestStatus) -> int:
        small, hits = Small(num_chunks=8, policy=ADAPTIVE), 0
        for number in range(100):
            asked = request(str(number), 1000 * number, SIZE)
            small.manager.allocate_slots(asked, SIZE)
            asked.num_computed_tokens = SIZE
            asked.append_output_token_ids(list(range(3 * SIZE)))
            small.manager.allocate_slots(asked, 3 * SIZE)
            is_measured = number >= 60
            asked.status = status if is_measured else RequestStatus.FINISHED
            small.manager.free(asked)
            small.step()
            small.compute(f"other {number}", 1000 * number + 500)
            asked.num_computed_tokens = 0
            hits += is_measured * small.manager.get_computed_blocks(asked)[1]
        return hits

    assert num_kept(RequestStatus.PREEMPTED) > 1.2 * num_kept(RequestStatus.FINISHED)
