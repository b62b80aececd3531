"""vLLM's ``CPUPrimaryTierOffloadingManager`` over :class:`kvoxide.HostTier`: CPU memory as the
primary tier of vLLM's ``TieringOffloadingManager``, which copies its chunks to other tiers and
back."""

from collections.abc import Collection
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, PrepareStoreOutput
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.tiering.manager import (
    CPUPrimaryTierOffloadingManager as StockPrimaryManager,
)

from kvoxide import BlockError, BlockHashError, RequestError
from kvoxide.vllm.offload.attributes import in_rust
from kvoxide.vllm.offload.manager import CPUOffloadingManager
from kvoxide.vllm.offload.switch import SwitchedManager


class SwitchedPrimaryManager(SwitchedManager, StockPrimaryManager):  # type: ignore[misc]
    """vLLM's manager of the primary tier in the state of kvoxide's."""


class CPUPrimaryTierOffloadingManager(CPUOffloadingManager, StockPrimaryManager):  # type: ignore[misc]
    """The manager of vLLM's primary tier, with its state in Rust.

    Reads and writes are copies to and from other tiers.
    """

    stock = StockPrimaryManager
    switched = SwitchedPrimaryManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        CPUOffloadingManager.__init__(self, *args, **kwargs)
        self._mmap_region = self.arguments["mmap_region"]
        self._kv_memoryview = self._mmap_region.create_kv_memoryview()

    def switch_to_vllm(self, why: str) -> None:
        """Become vLLM's own manager, in the state that the tier is in."""
        view = self._kv_memoryview
        super().switch_to_vllm(why)
        self._kv_memoryview = view  # other tiers have this object, and shutdown() releases it

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        """Return whether ``key`` can be loaded. Other servers may ask for bytes that are no key."""
        try:
            return super().lookup(key, req_context)
        except (BlockError, BlockHashError):
            return LookupResult.MISS

    def prepare_read(self, keys: Collection[Any], req_context: Any) -> CPULoadStoreSpec:
        """Return the chunks of ``keys`` for a copy to another tier, which is no request's use."""
        try:
            return CPULoadStoreSpec(self.tier.prepare_read(in_rust(keys)))
        except RequestError as error:
            raise AssertionError(str(error)) from None

    def complete_read(self, keys: Collection[Any], req_context: Any) -> None:
        """End a copy to another tier."""
        try:
            self.tier.complete_read(in_rust(keys))
        except RequestError as error:
            raise AssertionError(str(error)) from None

    def prepare_write(self, keys: Collection[Any], req_context: Any) -> PrepareStoreOutput | None:
        """Return where to put chunks of another tier. For keys that kvoxide cannot hold, become
        vLLM's own manager."""
        try:
            return self.prepare_store(keys, req_context)
        except (BlockError, BlockHashError):
            self.switch_to_vllm("another tier has a key that is no block hash with a group")
            return self.prepare_write(keys, req_context)

    complete_write = CPUOffloadingManager.complete_store
