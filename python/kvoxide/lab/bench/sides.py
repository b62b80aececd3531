"""The managers that are compared, each with requests of the type that it takes."""

from abc import ABC, abstractmethod
from typing import Any, Final

from kvoxide import _core
from kvoxide.lab.bench.layouts import Group, Layout
from kvoxide.lab.bench.prompts import Prompt
from kvoxide.lab.replay.input import parse_groups

VLLM: Final = "vLLM"
KVOXIDE: Final = "kvoxide"


class BenchError(_core.KvoxideError):
    """A manager did something else than the operation that was to be measured."""


class Side(ABC):
    """A manager, with the calls that vLLM's and kvoxide's have in common."""

    name: str
    manager: Any
    enable_kv_cache_events = False

    def __init__(self, layout: Layout, num_blocks: int, max_model_len: int, chunk: int) -> None:
        """Set the sizes of the manager: pool in blocks, longest request and prefill chunk in
        tokens."""
        self.layout = layout
        self.num_blocks = num_blocks
        self.max_model_len = max_model_len
        self.chunk = chunk
        self.renew()

    def renew(self) -> None:
        """Construct a new manager, with nothing cached."""
        self.manager = None
        self.manager = self._make_manager()

    @abstractmethod
    def _make_manager(self) -> Any: ...

    @abstractmethod
    def new_request(self, request_id: str, prompt: Prompt) -> Any:
        """Return a waiting request that this manager has not seen."""

    @abstractmethod
    def append_token(self, request: Any, prompt: Prompt) -> None:
        """Append a token of output, and the hash of the block that it fills."""

    @abstractmethod
    def set_running(self, request: Any) -> None:
        """Mark a request as running, as the scheduler does when it admits one."""


class _InVllm(Side):
    """A manager with the constructor of vLLM's class, for vLLM's requests."""

    def _make_manager(self) -> Any:
        layout = self.layout
        return self._manager_class()(
            kv_cache_config=_vllm_config(layout, self.num_blocks),
            max_model_len=self.max_model_len,
            scheduler_block_size=layout.scheduler_block_size,
            hash_block_size=layout.hash_block_size,
            max_in_flight_tokens=self.chunk,
            log_stats=True,
            enable_kv_cache_events=self.enable_kv_cache_events,
            dcp_world_size=layout.dcp_world_size,
        )

    @abstractmethod
    def _manager_class(self) -> Any: ...

    def new_request(self, request_id: str, prompt: Prompt) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        tokens = [0] * prompt.num_tokens
        sampling = SamplingParams(max_tokens=1)
        return Request(request_id, tokens, sampling, None, block_hasher=prompt.hasher())

    def append_token(self, request: Any, prompt: Prompt) -> None:
        request.append_output_token_ids(0)

    def set_running(self, request: Any) -> None:
        from vllm.v1.request import RequestStatus

        request.status = RequestStatus.RUNNING


class StockSide(_InVllm):
    """vLLM's own manager."""

    name = VLLM

    def _make_manager(self) -> Any:
        made = super()._make_manager()
        if type(made) is not self._manager_class():
            raise BenchError(
                f"{type(made).__module__} replaced vLLM's KVCacheManager, so there is nothing to"
                " compare with; uninstall it or add --alone"
            )
        return made

    def _manager_class(self) -> Any:
        from vllm.v1.core.kv_cache_manager import KVCacheManager

        return KVCacheManager


class AdapterSide(_InVllm):
    """kvoxide's manager as vLLM's scheduler gets it."""

    name = KVOXIDE

    def _manager_class(self) -> Any:
        from kvoxide.vllm import KVCacheManager

        return KVCacheManager


class StandaloneSide(Side):
    """kvoxide's manager without vLLM, with kvoxide's own requests."""

    name = KVOXIDE

    def _make_manager(self) -> Any:
        groups = parse_groups(self.layout.groups_text).specs
        return _core.KVCacheManager(
            _core.KVCacheConfig(self.num_blocks, groups),
            max_model_len=self.max_model_len,
            scheduler_block_size=self.layout.scheduler_block_size,
            hash_block_size=self.layout.hash_block_size,
            max_in_flight_tokens=self.chunk,
            log_stats=True,
            enable_kv_cache_events=self.enable_kv_cache_events,
            dcp_world_size=self.layout.dcp_world_size,
            # As in the KVCacheConfig of the other sides, every tail is kept.
            policy=_core.Policy(retention_interval=None),
        )

    def new_request(self, request_id: str, prompt: Prompt) -> Any:
        """Return a request with ready-made hashes."""
        hashes = prompt.hashes_between(0, prompt.num_hashes(prompt.num_tokens))
        return _core.Request(request_id, block_hashes=hashes, num_prompt_tokens=prompt.num_tokens)

    def append_token(self, request: Any, prompt: Prompt) -> None:
        """See :meth:`Side.append_token`."""
        start = prompt.num_hashes(request.num_tokens)
        stop = prompt.num_hashes(request.num_tokens + 1)
        request.append_block_hashes(prompt.hashes_between(start, stop), 1)

    def set_running(self, request: Any) -> None:
        """See :meth:`Side.set_running`."""
        request.status = _core.RequestStatus.RUNNING


def _vllm_config(layout: Layout, num_blocks: int) -> Any:
    from vllm.v1.kv_cache_interface import KVCacheConfig

    groups = vllm_groups(layout)
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)


def vllm_groups(layout: Layout) -> list[Any]:
    """Return the groups of a layout as vLLM's classes."""
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

    register_all_kvcache_specs(None)
    return [
        KVCacheGroupSpec([f"layer.{index}"], _vllm_spec(group))
        for index, group in enumerate(layout.groups)
    ]


def _vllm_spec(group: Group) -> Any:
    import torch
    from vllm.v1 import kv_cache_interface

    (kind,) = (kind for kind in _core.group_kinds() if kind.name == group.kind)
    spec = getattr(kv_cache_interface, kind.vllm_spec)
    sizes = dict[str, Any](kind.vllm_attributes)
    if group.is_state:
        return spec(
            block_size=group.spec.block_size, shapes=((8, 64),), dtypes=(torch.float32,), **sizes
        )
    if not group.spec.prefix_cacheable and kind.prefix_caching == "optional":
        sizes["bounded_replay"] = True
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 64, "dtype": torch.float16}
    return spec(block_size=group.spec.block_size, **shape, **sizes, **group.spec.sizes)
