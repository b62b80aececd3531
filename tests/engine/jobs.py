"""The engines that are compared: a model, vLLM's options for it, and the workloads it serves."""

from dataclasses import asdict, dataclass, field
from typing import Any

from .workload import LONGEST_REQUEST, Workload

BLOCK_SIZE = 32
MAX_MODEL_LEN = 544
assert MAX_MODEL_LEN % BLOCK_SIZE == 0
assert MAX_MODEL_LEN >= LONGEST_REQUEST

PLAIN = Workload(seed=1)
WITH_RESETS = Workload(seed=2, num_requests=100, reset_every=15)
TINY_POOL = {"num_gpu_blocks_override": MAX_MODEL_LEN // BLOCK_SIZE + 8}
CHUNKED = {"max_num_batched_tokens": 64}
DENSE = {"prefix_cache_retention_interval": None}
SPARSE = {"prefix_cache_retention_interval": 4 * BLOCK_SIZE}


@dataclass(frozen=True)
class Job:
    """One start of an engine; ``counters`` must not be zero after the first workload."""

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = (PLAIN, WITH_RESETS)
    async_scheduling: bool = False
    counters: tuple[str, ...] = ("prefix_cache_hits",)

    def to_json(self) -> dict[str, Any]:
        return {
            "engine": engine_options(self.model) | self.options,
            "workloads": [asdict(workload) for workload in self.workloads],
            "async_scheduling": self.async_scheduling,
        }


def engine_options(model: str) -> dict[str, Any]:
    return {
        "model": model,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": MAX_MODEL_LEN,
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks_override": 500,
        "max_num_seqs": 16,
    }


def speculating(**config: Any) -> dict[str, Any]:
    return {"speculative_config": {"num_speculative_tokens": 3, **config}}


NGRAM = speculating(method="ngram", prompt_lookup_min=1, prompt_lookup_max=3)
PREEMPTED = ("prefix_cache_hits", "num_preemptions")
SPECULATED = ("prefix_cache_hits", "spec_decode_num_accepted_tokens")

JOBS = {
    "llama": Job("llama"),
    "gemma": Job("gemma"),
    "llama-chunked": Job("llama", CHUNKED),
    "llama-preempted": Job("llama", TINY_POOL, counters=PREEMPTED),
    "gemma-preempted": Job(
        "gemma",
        {**CHUNKED, **DENSE, "num_gpu_blocks_override": 60, "scheduling_policy": "priority"},
        counters=PREEMPTED,
    ),
    "llama-ngram": Job("llama", NGRAM, counters=SPECULATED),
    "llama-draft-model": Job("llama", speculating(model="draft"), counters=SPECULATED),
    "llama-eagle": Job(
        "llama", {**speculating(method="eagle", model="eagle"), **CHUNKED}, counters=SPECULATED
    ),
    "llama-async": Job("llama", TINY_POOL, async_scheduling=True, counters=PREEMPTED),
    "gemma-async": Job("gemma", {**CHUNKED, **SPARSE}, async_scheduling=True),
}
