"""The calls for the chunks of a long prompt in host memory.

kvoxide's tier and vLLM's manager take turns. Each gets keys in the form that vLLM's offloading
connector gives it.
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from kvoxide._core import HostRequest, HostTier
from kvoxide._core_vllm import VllmChunkKeys, VllmRequestKeys
from kvoxide.lab.bench.clock import Samples, timed
from kvoxide.lab.bench.layouts import Group, Layout
from kvoxide.lab.bench.prompts import Prompt, make_prompt
from kvoxide.lab.bench.sides import KVOXIDE, VLLM, BenchError
from kvoxide.lab.bench.traffic import Effort

_POLICY: Final = "lru"


def measure_host(layout: Layout, effort: Effort, with_vllm: bool) -> Samples:
    """Measure every row of :data:`~kvoxide.lab.bench.rows.HOST_ROWS`."""
    samples = Samples()
    prompts = [make_prompt(name, effort.tokens, layout.hash_block_size) for name in "ab"]
    for index in range(effort.prefill_rounds):
        sides: list[HostSide] = [TierSide(layout, effort)]
        if with_vllm:
            sides.append(StockHostSide(layout, effort))
        gc.collect()
        for side in sides[:: 1 if index % 2 else -1]:
            _serve(side, prompts, effort, samples)
    return samples


def _serve(side: "HostSide", prompts: Sequence[Prompt], effort: Effort, samples: Samples) -> None:
    """Store a prompt, load it again, and store another in its place."""
    first, second = prompts
    starts = range(0, effort.tokens, effort.chunk)
    steps = [(at, min(at + effort.chunk, effort.tokens)) for at in starts]
    request = side.new_request(first)
    for step in steps:
        side.store(request, step)
        side.store_ends(request, step)
    side.end(request)
    request, everything = side.new_request(first), (0, effort.tokens)
    for row, call in (
        ("host-look-up", side.look_up),
        ("host-load", side.load),
        ("host-load-ends", side.load_ends),
    ):
        samples.add(row, side.name, timed(call, request, everything)[0])
    samples.add("host-end", side.name, timed(side.end, request)[0])
    request = side.new_request(second)
    for at, step in enumerate(steps):
        nanoseconds, _ = timed(side.store, request, step)
        # The first steps fill the free rest of the tier.
        if at > len(steps) // 3:
            samples.add("host-store", side.name, nanoseconds, at)
        side.store_ends(request, step)


class HostSide(ABC):
    """Host memory with room for a prompt and a quarter. Ranges are in tokens."""

    name: str

    def __init__(self, layout: Layout, effort: Effort) -> None:
        """Start with nothing stored."""
        self._layout = layout
        self._groups = [group for group in layout.groups if _has_chunks(group)]
        num_chunks = sum(effort.tokens // group.block_size for group in self._groups)
        self._make(num_chunks + num_chunks // 4)

    @abstractmethod
    def _make(self, num_chunks: int) -> None: ...

    def _parts(self, request: Any, tokens: tuple[int, int]) -> list[Any]:
        """Return the keys of each group."""
        start, end = tokens
        groups = zip(self._groups, request[1], strict=True)
        return [keys[start // g.block_size : end // g.block_size] for g, keys in groups]

    @abstractmethod
    def new_request(self, prompt: Prompt) -> Any:
        """Return a request with the keys of its chunks."""

    @abstractmethod
    def look_up(self, request: Any, tokens: tuple[int, int]) -> None:
        """Look up all chunks, and check that they are found."""

    @abstractmethod
    def load(self, request: Any, tokens: tuple[int, int]) -> None:
        """Begin a load."""

    @abstractmethod
    def load_ends(self, request: Any, tokens: tuple[int, int]) -> None:
        """End a load."""

    @abstractmethod
    def store(self, request: Any, tokens: tuple[int, int]) -> None:
        """Offer chunks. Chunks that are in their way are evicted."""

    @abstractmethod
    def store_ends(self, request: Any, tokens: tuple[int, int]) -> None:
        """End a store."""

    @abstractmethod
    def end(self, request: Any) -> None:
        """End the request."""


class TierSide(HostSide):
    """kvoxide's tier, with keys in Rust."""

    name = KVOXIDE

    def _make(self, num_chunks: int) -> None:
        self._tier = HostTier(num_chunks, _POLICY)

    def new_request(self, prompt: Prompt) -> Any:
        """See :meth:`HostSide.new_request`."""
        unit = self._layout.hash_block_size
        sizes = [(at, g.block_size // unit, g.block_size) for at, g in enumerate(self._groups)]
        keys = VllmRequestKeys(sizes)
        keys.extend(prompt.hashes_between(0, prompt.num_hashes(prompt.num_tokens)))
        request = HostRequest()
        self._tier.start_request(request)
        return request, keys.groups()

    def _keys(self, request: Any, tokens: tuple[int, int]) -> VllmChunkKeys:
        return VllmChunkKeys.joined(self._parts(request, tokens))

    def look_up(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.look_up`."""
        for keys in request[1]:
            _require(self._tier.lookup_prefix(keys[: len(keys)]) == len(keys))

    def load(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.load`."""
        self._tier.prepare_load(request[0], self._keys(request, tokens))

    def load_ends(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.load_ends`."""
        self._tier.complete_load(self._keys(request, tokens))

    def store(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.store`."""
        plan = self._tier.prepare_store(request[0], self._keys(request, tokens))
        _require(plan is not None)

    def store_ends(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.store_ends`."""
        self._tier.complete_store(self._keys(request, tokens), True)

    def end(self, request: Any) -> None:
        """See :meth:`HostSide.end`."""
        self._tier.finish_request(request[0])


class StockHostSide(HostSide):
    """vLLM's own ``CPUOffloadingManager``, with keys as bytes."""

    name = VLLM

    def _make(self, num_chunks: int) -> None:
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        self._manager = CPUOffloadingManager(num_chunks=num_chunks, cache_policy=_POLICY)

    def new_request(self, prompt: Prompt) -> Any:
        """See :meth:`HostSide.new_request`."""
        from vllm.v1.kv_offload.base import ReqContext, make_offload_key

        context = ReqContext(req_id=str(id(prompt)))
        hashes = prompt.hashes_between(0, prompt.num_hashes(prompt.num_tokens))
        keys = []
        for at, group in enumerate(self._groups):
            size = group.block_size // self._layout.hash_block_size
            of_group = [make_offload_key(each, at) for each in hashes[size - 1 :: size]]
            for n, key in enumerate(of_group, 1):
                context.set_offload_key_position(key, n * group.block_size)
            keys.append(of_group)
        self._manager.on_new_request(context)
        return context, keys

    def _keys(self, request: Any, tokens: tuple[int, int]) -> list[Any]:
        return [key for part in self._parts(request, tokens) for key in part]

    def look_up(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.look_up`."""
        context = request[0]
        for key in self._keys(request, tokens):
            self._manager.lookup(key, context)

    def load(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.load`."""
        self._manager.prepare_load(self._keys(request, tokens), request[0])

    def load_ends(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.load_ends`."""
        self._manager.complete_load(self._keys(request, tokens), request[0])

    def store(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.store`."""
        plan = self._manager.prepare_store(self._keys(request, tokens), request[0])
        _require(plan is not None)

    def store_ends(self, request: Any, tokens: tuple[int, int]) -> None:
        """See :meth:`HostSide.store_ends`."""
        self._manager.complete_store(self._keys(request, tokens), request[0])

    def end(self, request: Any) -> None:
        """See :meth:`HostSide.end`."""
        self._manager.on_request_finished(request[0])


def _require(is_as_expected: bool) -> None:
    if not is_as_expected:
        raise BenchError("the host tier lost chunks that were stored, or has no space for new ones")


def _has_chunks(group: Group) -> bool:
    """Return whether the blocks of a group are chunks at positions of tokens."""
    return group.spec.prefix_cacheable and not group.is_state and group.kind != "circular_buffer"
