"""kvoxide's manager for vLLM, with vLLM's interface, adapted to the harness's interface."""

from kvoxide.lab.verify.managers.driver import PoolState
from kvoxide.lab.verify.managers.sides.vllm import VllmDriver
from kvoxide.vllm.adapter.manager import KVCacheManager


class AdapterDriver(VllmDriver):
    manager_class = KVCacheManager

    @property
    def errors_change_nothing(self) -> bool:  # type: ignore[override]
        """Whether errors change nothing. They may once vLLM's own manager took over."""
        return self._is_native

    @property
    def _is_native(self) -> bool:
        return isinstance(self.manager, KVCacheManager)

    def state(self) -> PoolState:
        if self._is_native:
            self.manager.engine.check_invariants()
        return super().state()

    def state_digest(self) -> bytes:
        if not self._is_native:
            return super().state_digest()
        digest: bytes = self.manager.engine.state_digest()
        return digest
