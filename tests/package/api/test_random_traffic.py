"""Tests that the invariants hold after every call of random traffic. Some calls make no sense."""

import random
from typing import Any

import pytest
from kvoxide import KVCacheManager, KvoxideError, Policy, Request

from tests.testing.small import chunked, full, make_manager, make_request, window

NUM_CALLS = 600
MODELS: dict[str, dict[str, Any]] = {
    "full": {"groups": [full(4)]},
    "window": {"groups": [window(4, 12)], "policy": Policy(pin_min_drop_size=2)},
    "chunked": {"groups": [full(4), chunked(4, 16)]},
    "two": {
        "groups": [full(8), window(4, 8)],
        "policy": Policy(retention_interval=16, pin_min_drop_size=3),
    },
    "eagle": {"groups": [full(4), window(4, 8, is_eagle_group=True)], "use_eagle": True},
    "four": {
        "groups": [full(16), window(4, 9), window(2, 4), window(4, 9)],
        "policy": Policy(recycle_order="fifo", retention_interval=0),
    },
}


class Traffic:
    """A scheduler that makes random calls."""

    def __init__(self, model: str, seed: int) -> None:
        options = dict(MODELS[model])
        self.manager: KVCacheManager = make_manager(
            *options.pop("groups"), num_blocks=97, enable_kv_cache_events=True, **options
        )
        self.random = random.Random(seed)
        self.running: list[Request] = []
        self.num_started = 0

    def call(self) -> None:
        weighted = [
            (self.start, 6),
            (self.step, 20),
            (self.end, 4),
            (self.evict, 1),
            (self.reset, 1),
            (self.nonsense, 4),
        ]
        calls, weights = zip(*weighted, strict=True)
        self.random.choices(calls, weights)[0]()

    def start(self) -> None:
        prefix = self.random.randrange(3)
        tokens = [1000 * prefix + i for i in range(self.random.randrange(60))]
        tokens += [self.random.randrange(2) for _ in range(self.random.randrange(1, 30))]
        request = make_request(self.manager, f"r{self.num_started}", tokens)
        self.num_started += 1
        hit, num_hit, request.shared_prefix_boundary = self.manager.get_computed_blocks(request)
        num_new = self.random.randrange(1, request.num_tokens - num_hit + 1)
        if self.manager.allocate_slots(request, num_new, num_hit, hit) is not None:
            request.num_computed_tokens = num_hit + num_new
            self.running.append(request)

    def step(self) -> None:
        if not self.running:
            return
        request = self.random.choice(self.running)
        if request.num_computed_tokens == request.num_tokens:
            request.append_output_token_ids(self.random.randrange(3))
        rest = request.num_tokens - request.num_computed_tokens
        num_new = self.random.randrange(1, rest + 1)
        if self.manager.allocate_slots(request, num_new) is None:
            self.end()
        else:
            request.num_computed_tokens += num_new

    def end(self) -> None:
        if self.running:
            self.manager.free(self.running.pop(self.random.randrange(len(self.running))))

    def evict(self) -> None:
        self.manager.evict_blocks(self.random.sample(range(97), 5))

    def reset(self) -> None:
        assert self.manager.reset_prefix_cache() == (not self.running)
        self.manager.take_events()

    def end_all(self) -> None:
        while self.running:
            self.end()

    def nonsense(self) -> None:
        before = self.manager.state_digest()
        stranger = make_request(self.manager, "stranger", [1])
        for ask in (
            lambda: self.manager.free(stranger),
            lambda: self.manager.evict_blocks([0, 97]),
            lambda: self.manager.block_pool.get_new_blocks(97),
        ):
            with pytest.raises(KvoxideError):
                ask()
        assert self.manager.state_digest() == before


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_invariants_hold(model: str, seed: int) -> None:
    traffic = Traffic(model, seed)
    for _ in range(NUM_CALLS):
        traffic.call()
        traffic.manager.check_invariants()
    traffic.end_all()
    assert traffic.manager.usage == 0.0
    traffic.manager.check_invariants()


@pytest.mark.parametrize("model", MODELS)
def test_the_same_calls_lead_to_the_same_state(model: str) -> None:
    digests = set()
    for _ in range(2):
        traffic = Traffic(model, seed=7)
        for _ in range(NUM_CALLS):
            traffic.call()
        traffic.end_all()
        digests.add(traffic.manager.state_digest())
    assert len(digests) == 1
