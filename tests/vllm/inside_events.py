"""Tests that KV cache events, as vLLM's publisher sends them, have the same bytes from kvoxide's
manager as from vLLM's, after every call of random traffic."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import torch
from kvoxide import PoisonedError
from kvoxide.vllm.adapter import native_class
from kvoxide.vllm.adapter.events import by_position
from kvoxide.vllm.environment import recognise
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_manager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.request import Request

from tests.testing.small_world import (
    BLOCK_SIZE,
    config,
    full,
    states,
    stock_manager,
    window,
)

INT_HASHES = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
LOOKAHEADS = (0, 1, 3) if recognise().release.has_hash_lookahead else (0,)
GROUPS: dict[str, tuple[Callable[[], Any], ...]] = {
    "full": (full,),
    "full and window": (full, window, window),
    "full and states": (full, states),
}
KINDS = ("plain", "lora", "salt", "images", "overlapping images", "embeddings", "all")
encode = msgspec.msgpack.Encoder().encode


@dataclass
class Prompt:
    """Tokens and the values that belong to them. A prefix of a prompt is a prompt too."""

    tokens: list[int]
    features: list[tuple[int, int]]
    lora: LoRARequest | None
    salt: str | None
    embeddings: Any

    def up_to(self, end: int) -> "Prompt":
        features = [f for f in self.features if f[0] < end]
        embeddings = None if self.embeddings is None else self.embeddings[:end]
        return Prompt(self.tokens[:end], features, self.lora, self.salt, embeddings)

    def request(self, name: str, hasher: Any, *, full_report: bool) -> Any:
        sampling = SamplingParams(
            max_tokens=100,
            extra_args={"kv_cache_report_mode": "full"} if full_report else None,
        )
        return Request(
            name,
            self.tokens,
            sampling,
            None,
            mm_features=[image(*feature) for feature in self.features],
            lora_request=self.lora,
            cache_salt=self.salt,
            prompt_embeds=self.embeddings,
            block_hasher=hasher,
            session_id=f"session of {name}" if full_report else None,
        )


def image(offset: int, length: int) -> Any:
    return MultiModalFeatureSpec(
        data=None,
        modality="image",
        identifier=f"image {offset}",
        mm_position=PlaceholderRange(offset=offset, length=length),
    )


def random_prompt(rng: random.Random, kind: str) -> Prompt:
    has = (lambda of: kind == of) if kind != "all" else (lambda of: rng.random() < 0.6)
    num_tokens = rng.randrange(150, 500)
    overlapping = has("overlapping images")
    features: list[tuple[int, int]] = []
    offset = rng.randrange(40)
    while (overlapping or has("images")) and offset < num_tokens:
        length = rng.choice((1, 5, 16, 50, 130))
        features.append((offset, length))
        offset += rng.randrange(length) if overlapping else length
        offset += rng.choice((0, 1, 20))
    return Prompt(
        [rng.randrange(100_000) for _ in range(num_tokens)],
        features,
        LoRARequest("sql", 7, "/adapters/sql") if has("lora") else None,
        "tenant" if has("salt") else None,
        torch.rand(num_tokens, 2) if has("embeddings") else None,
    )


class Foreign(BlockStored, tag="BlockStored"):  # type: ignore[misc, call-arg]
    """An event of other code."""


class Pair:
    """vLLM's manager and kvoxide's, which get the same calls."""

    def __init__(self, groups: str, num_lookahead_tokens: int = 0, num_blocks: int = 50) -> None:
        specs = [make() for make in GROUPS[groups]]
        row = max(spec.block_size for spec in specs)
        lookahead = {"num_hash_lookahead_tokens": num_lookahead_tokens}
        arguments: dict[str, Any] = {
            "max_model_len": 2_000,
            "scheduler_block_size": row,
            "hash_block_size": BLOCK_SIZE,
            "enable_kv_cache_events": True,
            "log_stats": False,
            "kv_cache_config": config(*specs, num_blocks=num_blocks),
            **(lookahead if num_lookahead_tokens else {}),
        }
        self.stock = stock_manager(**arguments)
        self.native: Any = native_class()(**arguments)
        self.hasher = get_request_block_hasher(
            BLOCK_SIZE, sha256_cbor, *([num_lookahead_tokens] if num_lookahead_tokens else [])
        )
        self.has_partial_hits = row > BLOCK_SIZE
        self.kinds: set[type] = set()
        self.num_bytes = 0

    def both(self, call: Callable[[Any], Any]) -> Any:
        """Return the answers of both managers, after comparing their events."""
        stock, native = call(self.stock), call(self.native)
        assert native == stock
        self.compare_events()
        return native

    def compare_events(self) -> None:
        stock, native = self.stock.take_events(), self.native.take_events()
        assert native == stock
        sent = [encode(KVEventBatch(0.0, events, 0)) for events in (stock, native)]
        assert sent[0] == sent[1]
        self.kinds |= {type(event) for event in native}
        self.num_bytes += len(sent[0])

    def evict(self, block_ids: set[int]) -> None:
        self.both(lambda manager: manager.evict_blocks(block_ids))

    def serve(self, rng: random.Random, name: str, prompt: Prompt) -> None:
        """Serve a request from its look-up to its end."""
        # vLLM cannot report a hit that ends inside a block: it raises.
        full_report = not self.has_partial_hits and rng.random() < 0.5
        requests = [prompt.request(name, self.hasher, full_report=full_report) for _ in range(2)]
        of = dict(zip((self.stock, self.native), requests, strict=True))
        hits = {m: m.get_computed_blocks(r)[:2] for m, r in of.items()}
        self.compare_events()
        num_hit = hits[self.native][1]
        assert num_hit == hits[self.stock][1]
        num_computed, blocks = num_hit, {m: hit[0] for m, hit in hits.items()}
        while num_computed < len(prompt.tokens) + 20:
            if num_computed >= len(prompt.tokens):
                token = rng.randrange(1_000)
                for request in requests:
                    request.append_output_token_ids(token)
            num_new = min(self._chunk(rng), requests[0].num_tokens - num_computed)
            if not self._allocate(of, num_new, num_hit, blocks):
                break
            num_computed += num_new
            num_hit = 0
            for request in requests:
                request.num_computed_tokens = num_computed
        for manager, request in of.items():
            manager.free(request)
        self.compare_events()

    def _chunk(self, rng: random.Random) -> int:
        return rng.choice((7, BLOCK_SIZE, 3 * BLOCK_SIZE, 6 * BLOCK_SIZE))

    def _allocate(
        self, of: dict[Any, Any], num_new: int, num_hit: int, blocks: dict[Any, Any]
    ) -> bool:
        def allocate(manager: Any) -> Any:
            hit = (num_hit, blocks[manager]) if num_hit else ()
            new = manager.allocate_slots(of[manager], num_new, *hit)
            copies, copied = manager.take_kv_cache_block_copies()
            manager.block_pool.free_blocks(copied)
            return new and new.get_block_ids(), copies

        return self.both(allocate)[0] is not None


@pytest.fixture(params=["0", "1"], autouse=True, ids=["bytes", "ints"])
def hashes(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(INT_HASHES, request.param)
    return str(request.param)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("num_lookahead_tokens", LOOKAHEADS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_are_sent(kind: str, num_lookahead_tokens: int, groups: str) -> None:
    rng = random.Random(f"{kind} {num_lookahead_tokens} {groups}")
    pair = Pair(groups, num_lookahead_tokens)
    prompts = [random_prompt(rng, kind) for _ in range(3)]
    for number in range(24):
        prompt = rng.choice(prompts)
        pair.serve(rng, f"{number}", prompt.up_to(rng.randrange(20, len(prompt.tokens))))
        if number % 8 == 0:
            pair.evict({rng.randrange(1, 50) for _ in range(20)})
        if number == 15:
            assert pair.both(lambda manager: manager.reset_prefix_cache())
    assert {kind.__name__ for kind in pair.kinds} == {
        "BlockStored",
        "BlockRemoved",
        "AllBlocksCleared",
    }
    assert pair.num_bytes > 5_000


def test_hashes_are_what_the_environment_says_at_the_time(
    hashes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, rng = Pair("full"), random.Random(1)
    kinds = []
    for value in (hashes, "1", "0"):
        monkeypatch.setenv(INT_HASHES, value)
        prompt = random_prompt(rng, "plain")
        request = prompt.request(value, pair.hasher, full_report=False)
        pair.native.allocate_slots(request, 64)
        pair.native.free(request)
        (stored,) = (e for e in pair.native.take_events() if isinstance(e, BlockStored))
        kinds.append(type(stored.block_hashes[0]))
    assert kinds == [int if hashes == "1" else bytes, int, bytes]


def test_events_that_cannot_be_made_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, rng = Pair("full"), random.Random(1)
    prompt = random_prompt(rng, "plain")
    monkeypatch.setenv(INT_HASHES, "yes")
    request = prompt.request("a", pair.hasher, full_report=False)
    with pytest.raises(ValueError, match="yes"):
        pair.native.allocate_slots(request, 64)
    with pytest.raises(PoisonedError, match=r"raised ValueError: .*yes"):
        pair.native.allocate_slots(request, 64)


def test_events_of_others_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair("full and window")
    fields = dict.fromkeys(("parent_block_hash", "lora_id", "medium", "lora_name"))
    groups = (None, 0, 1, -1, 7)
    for manager in (pair.stock, pair.native):
        manager.block_pool.kv_event_queue += [
            Foreign(block_hashes=[1], token_ids=[2], block_size=1, group_idx=group, **fields)
            for group in groups
        ]
        manager.block_pool.kv_event_queue.append("no event")
    warned: list[tuple[Any, ...]] = []
    monkeypatch.setattr(kv_cache_manager.logger, "warning", lambda *args: warned.append(args))
    pair.compare_events()
    assert len(warned) == 4
    assert warned[:2] == warned[2:]


def test_a_class_whose_fields_stand_in_another_order() -> None:
    class Other(msgspec.Struct):  # type: ignore[misc]
        group_idx: int
        block_hashes: list[int]
        medium: str

    made = by_position(Other)([7], "GPU", 3)
    assert made == Other(group_idx=3, block_hashes=[7], medium="GPU")
    assert by_position(BlockRemoved) is BlockRemoved
