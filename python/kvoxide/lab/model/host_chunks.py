"""Computes the chunks of CPU memory, as vLLM's offloading connector sizes them."""

from typing import Final

from kvoxide.lab.model.reader import Plan

# vLLM pads each chunk to whole pages of memory.
_PAGE: Final = 4096


def host_chunk_bytes(plan: Plan) -> int:
    """Return the bytes that a chunk takes in the CPU memory of one instance.

    A chunk has room for one block of any group on each rank. Ranks of tensor parallelism share one
    copy if all groups are latent attention.
    """
    deployment = plan.deployment
    is_replicated = deployment.pipeline_parallel == 1 and all(
        "mla" in spec.kind for spec in plan.kv_cache_groups
    )
    copies = 1 if is_replicated else deployment.tensor_parallel * deployment.pipeline_parallel
    return -(-plan.block_bytes * copies // _PAGE) * _PAGE
