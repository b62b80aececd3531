"""kvoxide's manager for vLLM, with the interface of vLLM's own, behind the harness's interface."""

from kvoxide.vllm.manager import KVCacheManager

from .vllm_driver import VllmDriver


class AdapterDriver(VllmDriver):
    manager_class = KVCacheManager
