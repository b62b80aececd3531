"""Returns kvoxide's plan of a model in the form in which vLLM's answers are recorded."""

from pathlib import Path
from typing import Any

from kvoxide import ConfigError, KVCacheManager
from kvoxide.lab.model import Deployment, ModelPlan, plan_model
from kvoxide.lab.model.memory import request_blocks

from .cases import MAX_BATCHED_TOKENS, MEMORIES


def plan(config: Path, **served: Any) -> ModelPlan:
    return plan_model(config, Deployment(**served, max_batched_tokens=MAX_BATCHED_TOKENS))


def num_blocks(made: ModelPlan, memory: int) -> int | None:
    try:
        return made.num_blocks(memory)
    except ConfigError:
        return None


def answer_of(made: ModelPlan) -> dict[str, Any]:
    """Return an answer in the form of :func:`tests.vllm.models.asking.plan`."""
    rows: list[list[Any]] = []
    for group in made.groups:
        spec = group.spec
        row = [spec.kind, spec.tokens, len(group.layers), spec.window, spec.page]
        row += [spec.num_prefill_checkpoint_blocks, spec.prefill_checkpoint_alignment]
        if rows and rows[-1][1:] == row:
            rows[-1][0] += 1
        else:
            rows.append([1, *row])
    in_flight = made.deployment.max_in_flight_tokens
    blocks = request_blocks(made.groups, made.max_model_len, in_flight)
    return {
        "groups": rows,
        "block_bytes": made.block_bytes,
        "request_bytes": blocks * made.block_bytes,
        "max_model_len": made.max_model_len,
        "blocks": [num_blocks(made, memory) for memory in MEMORIES],
        **hashing(made),
    }


def hashing(made: ModelPlan) -> dict[str, int]:
    """Return the hashing of a manager with these groups."""
    blocks = request_blocks(made.groups, made.max_model_len, made.deployment.max_in_flight_tokens)
    config = made.kv_cache_config((blocks + 1) * made.block_bytes)
    manager = KVCacheManager(config, made.max_model_len)
    is_partial = manager.enable_partial_hash_hits
    hit_tokens = manager.hash_block_size if is_partial else manager.scheduler_block_size
    return {"hash_tokens": manager.hash_block_size, "hit_tokens": hit_tokens}
