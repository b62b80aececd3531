"""A router that follows KV events. The time of a chunk of 8,192 tokens is measured from its
allocation until the publisher gets the events, in an empty pool and in one full of other prompts'
blocks."""

from collections.abc import Iterator
from typing import Any

from kvoxide.lab.bench.clock import collector_paused
from kvoxide.lab.bench.layouts import LAYOUTS, MILLION
from kvoxide.lab.bench.prompts import Prompt
from kvoxide.lab.bench.sides import KVOXIDE, VLLM, AdapterSide, StockSide
from kvoxide.lab.bench.traffic import Effort, Traffic

from benches.neighbours.rows import Measured

NAMES = ("full", "gemma", "dsv4")
PROMPTS = (100_000, MILLION)
POOLS = {"chunk-cold": "empty pool", "chunk-evicting": "full pool"}


def measure() -> Iterator[Measured]:
    """Yield the mean over the chunks of a prompt, for each layout, prompt and pool."""
    from vllm import envs

    # vLLM's engine does this once it is ready. Without it, vLLM is slower still.
    envs.enable_envs_cache()
    for name in NAMES:
        for num_tokens in PROMPTS:
            effort = Effort(tokens=num_tokens)
            num_blocks = effort.num_blocks(LAYOUTS[name])
            sizes = (LAYOUTS[name], num_blocks, effort.max_model_len, effort.chunk)
            traffic = Traffic(LAYOUTS[name], (_Stock(*sizes), _Kvoxide(*sizes)), effort)
            with collector_paused():
                traffic.prefill()
            for row, pool in POOLS.items():
                times = [traffic.samples.microseconds(row, side) for side in (VLLM, KVOXIDE)]
                stock, native = (time for time in times if time is not None)
                title = f"KV events of a chunk, {name}, {pool}"
                yield Measured(title, num_blocks, num_tokens, stock, native)


class _Stock(StockSide):
    enable_kv_cache_events = True

    def _make_manager(self) -> Any:
        return _reporting(super()._make_manager())

    def new_request(self, request_id: str, prompt: Prompt) -> Any:
        return _with_tokens(super().new_request(request_id, prompt))


class _Kvoxide(AdapterSide):
    enable_kv_cache_events = True

    def _make_manager(self) -> Any:
        return _reporting(super()._make_manager())

    def new_request(self, request_id: str, prompt: Prompt) -> Any:
        return _with_tokens(super().new_request(request_id, prompt))


def _reporting(manager: Any) -> Any:
    """Return a manager whose allocations also take the events, and keep them like the publisher's
    queue."""
    allocate_slots, published = manager.allocate_slots, []

    def allocate_and_take(*args: Any, **kwargs: Any) -> Any:
        new = allocate_slots(*args, **kwargs)
        events = manager.take_events()
        if not events:
            raise RuntimeError("a chunk had no KV events")
        published.append(events)
        return new

    manager.allocate_slots = allocate_and_take
    return manager


def _with_tokens(request: Any) -> Any:
    """Give the request token ids that are separate objects, as from a tokenizer."""
    request._all_token_ids[:] = range(1_000, 1_000 + request.num_tokens)
    return request
