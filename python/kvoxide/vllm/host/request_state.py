"""What the connector knows of a request: vLLM's class with shorter ways to extend its keys."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import RequestOffloadState

from kvoxide._core_vllm import VllmRequestKeys
from kvoxide.vllm.host.keys import KeyPositions


def extend_keys_faster(state: Any, in_rust: bool) -> None:
    """Make a request's state extend its keys, of which it has none yet, by new hashes alone; keep
    them in Rust if so."""
    if type(state) is not RequestOffloadState:
        return
    if in_rust:
        _keep_keys(state)
    state.__class__ = _StateInRust if in_rust else _RequestState


def _keep_keys(state: Any) -> None:
    groups = state.config.kv_group_configs
    keys = VllmRequestKeys(
        [(group.group_idx, group.hashes_per_chunk, group.tokens_per_chunk) for group in groups]
    )
    for group_state, group_keys in zip(state.group_states, keys.groups(), strict=True):
        group_state.offload_keys = group_keys
    state.req_context._offload_key_positions = KeyPositions(keys)


class _RequestState(RequestOffloadState):  # type: ignore[misc]
    """What the connector knows of a request. The step's new hashes alone cost time."""

    __slots__ = ()

    def update_offload_keys(self) -> None:
        hashes = self.req.block_hashes
        if type(hashes) is not list:
            super().update_offload_keys()
            return
        num_hashes = len(hashes)
        for config, state in zip(self.config.kv_group_configs, self.group_states, strict=False):
            keys, hashes_per_chunk = state.offload_keys, config.hashes_per_chunk
            end = (len(keys) + 1) * hashes_per_chunk
            if end > num_hashes:
                continue
            group = config.group_idx.to_bytes(4, "big")
            new = [block_hash + group for block_hash in hashes[end - 1 :: hashes_per_chunk]]
            size, num_known = config.tokens_per_chunk, len(keys) + 1
            ends = range(num_known * size, (num_known + len(new)) * size, size)
            self.req_context._offload_key_positions.update(zip(new, ends, strict=True))
            keys += new


class _StateInRust(RequestOffloadState):  # type: ignore[misc]
    """What the connector knows of a request whose keys are in Rust."""

    __slots__ = ()

    def update_offload_keys(self) -> None:
        hashes, attributes = self.req.block_hashes, getattr(self.req, "__dict__", None)
        for group_state in self.group_states[:1]:
            keys = group_state.offload_keys
            keys.extend(hashes if type(hashes) is list else list(hashes), attributes)
