"""Sides that only the project's own proof compares. One is kvoxide's standalone manager with the
harness's interface. The others have adaptive retention, which vLLM does not have. There the
standalone manager and the adapter are the two sides: they must decide the same, and no invariant
may break."""

import os
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from kvoxide import _core
from kvoxide.lab.verify.managers.driver import (
    BlockIds,
    Demand,
    Event,
    Events,
    NewRequest,
    PoolState,
)
from kvoxide.lab.verify.managers.scenarios import Group, Scenario
from kvoxide.lab.verify.managers.sides import AdapterDriver, CommonDriver


class KvoxideDriver(CommonDriver):
    has_vllm_interface = False
    errors_change_nothing = True
    status_class = _core.RequestStatus

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(make_manager(scenario, self.policy_of(scenario)))
        self._ready_made_hashes = scenario.ready_made_hashes
        self._hasher = _core.BlockHasher(scenario.hash_block_size, scenario.hash_algorithm)
        self._num_requests = 0

    def policy_of(self, scenario: Scenario) -> _core.Policy:
        return _core.Policy(retention_interval=scenario.retention_interval)

    def new_request(self, request: NewRequest) -> list[bytes]:
        made = self._make_request(request)
        self._requests[request.request_id] = made
        self._num_requests += 1
        return made.block_hashes

    def _make_request(self, request: NewRequest) -> _core.Request:
        if self._ready_made_hashes:
            assert request.block_hashes is not None
            return _core.Request(
                request.request_id,
                block_hashes=request.block_hashes,
                num_prompt_tokens=len(request.prompt),
                cache_salt=request.cache_salt,
                lora=request.lora,
                session_id=request.session_id,
                skip_reading_prefix_cache=request.skip_lookup,
                kv_cache_report_mode="full" if request.full_report else "incremental",
            )
        return _core.Request(
            request.request_id,
            self._in_some_form(request.prompt),
            block_hasher=self._hasher,
            cache_salt=request.cache_salt,
            lora=request.lora,
            session_id=request.session_id,
            skip_reading_prefix_cache=request.skip_lookup,
            kv_cache_report_mode="full" if request.full_report else "incremental",
        )

    def _in_some_form(self, tokens: list[int]) -> "Sequence[int] | _core.TokenArray":
        match self._num_requests % 4:
            case 0:
                return np.array(tokens, dtype=np.int32)
            case 1:
                return np.array(tokens, dtype=np.int64)
            case 2:
                return np.array(tokens, dtype=np.uint32)
            case _:
                return tokens

    def append_tokens(
        self, request_id: str, tokens: list[int], new_hashes: list[bytes] | None
    ) -> list[bytes]:
        request: _core.Request = self._requests[request_id]
        if self._ready_made_hashes:
            assert new_hashes is not None
            request.append_block_hashes(new_hashes, len(tokens))
        else:
            request.append_output_token_ids(tokens[0] if len(tokens) == 1 else tokens)
        return request.block_hashes

    def blocks_needed(self, request_id: str, demand: Demand) -> int:
        needed: int = self.manager.get_num_blocks_to_allocate(
            self._requests[request_id],
            demand.num_tokens,
            new_computed_blocks=self._hits[request_id] if demand.with_hit else None,
            total_computed_tokens=demand.total_computed_tokens,
            num_local_computed_tokens=demand.num_local_computed_tokens,
            apply_admission_cap=demand.apply_admission_cap,
            num_encoder_tokens=demand.num_encoder_tokens,
            prefill_end=demand.prefill_end,
        )
        return needed

    def take_events(self) -> Events:
        return Events([_event(e) for e in self.manager.take_events()], [])

    def state(self) -> PoolState:
        self.manager.check_invariants()
        return super().state()

    def state_digest(self) -> bytes:
        digest: bytes = self.manager.state_digest()
        return digest

    def _num_groups(self, blocks: _core.KVCacheBlocks) -> int:
        return len(blocks)

    def _as_arrays(self, blocks: _core.KVCacheBlocks) -> BlockIds:
        return tuple(ids.tolist() for ids in blocks.get_block_ids_numpy())

    def _free_queue(self) -> list[int]:
        block_ids: list[int] = self._pool.get_free_block_ids().tolist()
        return block_ids


class AdaptiveAdapterDriver(AdapterDriver):
    """The adapter with the policy that the environment sets. If ``KVOXIDE_CHECK`` is not set, every
    call is checked."""

    def __init__(self, scenario: Scenario) -> None:
        check = os.environ.get("KVOXIDE_CHECK", "1")
        with mock.patch.dict(os.environ, KVOXIDE_POLICY="adaptive", KVOXIDE_CHECK=check):
            super().__init__(scenario)


class AdaptiveKvoxideDriver(KvoxideDriver):
    def policy_of(self, scenario: Scenario) -> _core.Policy:
        return _core.Policy(retention="adaptive")


def make_manager(scenario: Scenario, policy: _core.Policy) -> _core.KVCacheManager:
    config = _core.KVCacheConfig(
        scenario.num_blocks,
        [make_group(group) for group in scenario.groups],
        needs_kv_cache_zeroing=scenario.needs_zeroing,
    )
    return _core.KVCacheManager(
        config,
        scenario.max_model_len,
        scheduler_block_size=scenario.scheduler_block_size,
        hash_block_size=scenario.hash_block_size,
        max_in_flight_tokens=scenario.max_in_flight_tokens,
        enable_caching=scenario.enable_caching,
        use_eagle=scenario.use_eagle,
        num_hash_lookahead_tokens=scenario.num_hash_lookahead_tokens,
        num_prefill_lookahead=scenario.num_prefill_lookahead,
        log_stats=scenario.log_stats,
        enable_kv_cache_events=scenario.enable_events,
        watermark=scenario.watermark,
        dcp_world_size=scenario.dcp_world_size,
        enable_mamba_shared_prefix_checkpoint=scenario.shared_prefix_checkpoint,
        policy=policy,
    )


def make_group(group: Group) -> _core.KVCacheGroupSpec:
    if group.kind == "mamba":
        return _make_states(group)
    (kind,) = (kind for kind in _core.group_kinds() if kind.name == group.kind)
    sizes: dict[str, Any] = dict.fromkeys(kind.required_sizes, group.window)
    sizes |= dict.fromkeys(kind.optional_sizes, group.extra_retained_tokens)
    return _core.KVCacheGroupSpec(
        kind.name,
        group.block_size,
        is_eagle_group=group.is_eagle,
        prefix_cacheable=None if group.kind == "cross_attention" else group.prefix_cacheable,
        dcp_sharded=False if group.is_replicated else None,
        layout=group.layout,
        **sizes,
    )


def _make_states(group: Group) -> _core.KVCacheGroupSpec:
    return _core.KVCacheGroupSpec(
        "mamba" if group.mamba_mode == "align" else "mamba_none",
        group.block_size,
        is_eagle_group=group.is_eagle,
        layout=group.layout,
        num_speculative_blocks=group.num_speculative_blocks,
        num_prefill_checkpoint_blocks=group.num_prefill_checkpoint_blocks,
        prefill_checkpoint_alignment=group.prefill_checkpoint_alignment,
    )


def _event(event: "_core.KVCacheEvent") -> Event:
    match event:
        case _core.BlockStored():
            return {
                "type": "stored",
                "block_hashes": event.block_hashes,
                "parent_block_hash": event.parent_block_hash,
                "token_ids": event.token_ids,
                "block_size": event.block_size,
                "medium": event.medium,
                "lora_name": event.lora_name,
                "extra_keys": event.extra_keys,
                "group_idx": event.group_idx,
                "kv_cache_spec_kind": event.kv_cache_spec_kind,
                "kv_cache_spec_sliding_window": event.kv_cache_spec_sliding_window,
                "session_id": event.session_id,
                "lookahead_token_ids": event.lookahead_token_ids,
            }
        case _core.BlockRemoved():
            return {
                "type": "removed",
                "block_hashes": event.block_hashes,
                "medium": event.medium,
                "group_idx": event.group_idx,
            }
        case _core.AllBlocksCleared():
            return {"type": "cleared"}
