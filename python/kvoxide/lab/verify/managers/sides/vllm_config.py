"""Converts scenarios and requests to vLLM's classes."""

import os
from collections.abc import Callable, Iterator, Sequence

from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

from kvoxide.lab.verify.managers.driver import NewRequest
from kvoxide.lab.verify.managers.scenarios import HashAlgorithm, Scenario
from kvoxide.lab.verify.managers.sides.vllm_specs import make_spec

register_all_kvcache_specs(None)

_SEED_VARIABLE = "PYTHONHASHSEED"


class ZeroingConfig(KVCacheConfig):  # type: ignore[misc]
    """vLLM's configuration, with zeroing. vLLM zeroes only for mixed precisions, but these groups
    must stay equal."""

    needs_kv_cache_zeroing = True


def make_request(request: NewRequest, hasher: Callable[[Request], list[bytes]]) -> Request:
    return Request(
        request_id=request.request_id,
        prompt_token_ids=request.prompt,
        sampling_params=_sampling_params(request),
        pooling_params=None,
        mm_features=list(_images(request.prompt, request.image_interval)),
        lora_request=_lora_request(request.lora),
        cache_salt=request.cache_salt,
        block_hasher=hasher,
        session_id=request.session_id,
    )


def _images(prompt: Sequence[int], interval: int) -> Iterator[MultiModalFeatureSpec]:
    """Yield an image at every token that is a multiple of ``interval``. So prompts that share a
    prefix share its images."""
    end = 0
    for offset, token in enumerate(prompt):
        if interval and token % interval == 0 and offset >= end:
            end = min(offset + interval // 2 + 1, len(prompt))
            yield MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=f"image {token}",
                mm_position=PlaceholderRange(offset=offset, length=end - offset),
            )


def make_config(scenario: Scenario) -> KVCacheConfig:
    config_class = ZeroingConfig if scenario.needs_zeroing else KVCacheConfig
    groups = [
        KVCacheGroupSpec([f"layer.{i}"], make_spec(g), is_eagle_group=g.is_eagle)
        for i, g in enumerate(scenario.groups)
    ]
    return config_class(
        num_blocks=scenario.num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=scenario.retention_interval,
    )


def make_hasher(scenario: Scenario) -> Callable[[Request], list[bytes]]:
    init_none_hash(scenario.hash_algorithm)
    hasher: Callable[[Request], list[bytes]] = kv_cache_utils.get_request_block_hasher(
        scenario.hash_block_size,
        get_hash_fn_by_name(scenario.hash_algorithm),
        *_if_any(scenario.num_hash_lookahead_tokens),
    )
    return hasher


def _if_any(number: int) -> tuple[int, ...]:
    return (number,) if number else ()


def init_none_hash(algorithm: HashAlgorithm) -> None:
    """Set a fixed seed. vLLM draws a random one for xxhash, but a reproduction needs a fixed
    one."""
    before = os.environ.get(_SEED_VARIABLE)
    os.environ[_SEED_VARIABLE] = kv_cache_utils.DEFAULT_NONE_HASH_SEED
    try:
        kv_cache_utils.init_none_hash(get_hash_fn_by_name(algorithm))
    finally:
        os.environ.pop(_SEED_VARIABLE)
        if before is not None:
            os.environ[_SEED_VARIABLE] = before


def _sampling_params(request: NewRequest) -> SamplingParams:
    mode = "full" if request.full_report else "incremental"
    return SamplingParams(
        max_tokens=request.max_tokens,
        extra_args={"kv_cache_report_mode": mode},
        skip_reading_prefix_cache=request.skip_lookup,
    )


def _lora_request(lora: tuple[str, str] | None) -> LoRARequest | None:
    if lora is None:
        return None
    name, path = lora
    return LoRARequest(lora_name=name, lora_int_id=1, lora_path=path)
