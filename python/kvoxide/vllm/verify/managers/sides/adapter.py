"""kvoxide's manager for vLLM, with the interface of vLLM's own, behind the harness's interface."""

from kvoxide.vllm.adapter.manager import KVCacheManager
from kvoxide.vllm.verify.managers.driver import PoolState
from kvoxide.vllm.verify.managers.sides.vllm import VllmDriver


class AdapterDriver(VllmDriver):
    manager_class = KVCacheManager
    errors_change_nothing = True

    def state(self) -> PoolState:
        self.manager.engine.check_invariants()
        return super().state()

    def state_digest(self) -> bytes:
        digest: bytes = self.manager.engine.state_digest()
        return digest
