"""The compared engines: a model, vLLM's options for it, and the workloads that it serves."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .workload import Workload, longest_request

BLOCK_SIZE = 32
MAX_MODEL_LEN = 544
assert MAX_MODEL_LEN % BLOCK_SIZE == 0
assert longest_request(scale=1) <= MAX_MODEL_LEN

# The long run's are three times as long.
PLAIN = Workload(seed=1, num_requests=60)
WITH_RESETS = Workload(seed=2, num_requests=24, num_aborts=6, reset_every=10)
AGAIN = (Workload(seed=1, num_requests=20, num_aborts=2),) * 2
TINY_POOL = {"num_gpu_blocks_override": MAX_MODEL_LEN // BLOCK_SIZE + 8}
CHUNKED = {"max_num_batched_tokens": 64}
DENSE = {"prefix_cache_retention_interval": None}
SPARSE = {"prefix_cache_retention_interval": 4 * BLOCK_SIZE}


@dataclass(frozen=True)
class Job:
    """One start of an engine.

    After the first workload, ``counters`` must not be zero, and the steps must have done each thing
    in ``seen``.
    """

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = (PLAIN, WITH_RESETS)
    async_scheduling: bool = False
    counters: tuple[str, ...] = ("prefix_cache_hits",)
    seen: tuple[str, ...] = ()

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


def three_times_as_long(job: Job) -> Job:
    longer = (replace(each, num_requests=3 * each.num_requests) for each in job.workloads)
    return replace(job, workloads=tuple(longer))


def speculating(**config: Any) -> dict[str, Any]:
    return {"speculative_config": {"num_speculative_tokens": 3, **config}}


NGRAM = speculating(method="ngram", prompt_lookup_min=1, prompt_lookup_max=3)
# vLLM's gated delta nets on a CPU fail if a step has fewer drafts than the maximum.
ONE_DRAFT = speculating(
    method="ngram", prompt_lookup_min=1, prompt_lookup_max=3, num_speculative_tokens=1
)
PREEMPTED = ("prefix_cache_hits", "num_preemptions")
SPECULATED = ("prefix_cache_hits", "spec_decode_num_accepted_tokens")

# The job that is served with adaptive retention too.
ADAPTED = "gemma"

JOBS = {
    "llama": Job("llama"),
    # A pool in which prompts are evicted while they are still asked for.
    ADAPTED: Job("gemma", {"num_gpu_blocks_override": 150}, (PLAIN, WITH_RESETS, *AGAIN)),
    "llama-chunked": Job("llama", CHUNKED),
    "llama-preempted": Job(
        "llama", TINY_POOL, (replace(PLAIN, num_requests=100), WITH_RESETS), counters=PREEMPTED
    ),
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

LONG_JOBS = {f"{name}, three times as long": three_times_as_long(job) for name, job in JOBS.items()}

# The size of a recurrent state determines vLLM's smallest block, which is at least this on a CPU.
STATE_BLOCK_SIZE = 256
STATE_MODEL_LEN = 8 * STATE_BLOCK_SIZE
STATE_SCALE = 4
assert longest_request(STATE_SCALE) <= STATE_MODEL_LEN

LONG_PROMPTS = (
    Workload(seed=1, num_requests=30, num_aborts=3, scale=STATE_SCALE),
    Workload(seed=2, num_requests=16, num_aborts=2, scale=STATE_SCALE, reset_every=10),
)
RECURRENT = {"block_size": STATE_BLOCK_SIZE, "max_model_len": STATE_MODEL_LEN}
ONE_BLOCK_A_STEP = {"max_num_batched_tokens": STATE_BLOCK_SIZE}
# vLLM's gated delta nets on a CPU support no other type.
QWEN = {**RECURRENT, "dtype": "bfloat16"}
PARTIAL_HITS = {"prefix_match_unit": STATE_BLOCK_SIZE // 4}
FEW_BLOCKS = {"num_gpu_blocks_override": 40}


def recurrent(model: str, options: dict[str, Any], **rest: Any) -> Job:
    return Job(model, options, workloads=LONG_PROMPTS, **rest)


JOBS |= {
    "qwen3-next": recurrent("qwen3-next", QWEN),
    "qwen3-next-partial-hits": recurrent("qwen3-next", {**QWEN, **PARTIAL_HITS}, seen=("copies",)),
}

# Other jobs, the servers and vLLM's scheduler over both managers (tests/proof/scheduler) have their
# options too, so only the long run plays them.
SHOWN_BY_OTHERS = ("llama", "llama-chunked", "llama-ngram", "llama-async", "qwen3-next")

# The ordinary tests play these jobs with every release, and the others with the newest.
ON_EACH_RELEASE = ("llama-preempted", "qwen3-next-partial-hits")


def host_memory(megabytes: int) -> dict[str, Any]:
    """Return vLLM's ``kv_transfer_config`` for CPU memory without an accelerator."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": megabytes << 20,
            "spec_name": "HostCopies",
            "spec_module_path": "tests.engine.host_copies",
        },
    }


def offloaded(job: Job, megabytes: int) -> Job:
    """Return the same engine with ``megabytes`` of CPU memory, from which prompts are loaded.

    The prefix cache is not reset: vLLM cannot preempt a request whose prompt is being loaded.
    """
    return replace(
        job,
        options=job.options | {"kv_transfer_config": host_memory(megabytes)},
        workloads=tuple(replace(each, reset_every=None) for each in job.workloads),
        counters=("prefix_cache_hits", "external_prefix_cache_hits"),
    )


OFFLOADED_JOBS = {
    "llama": offloaded(Job("llama", TINY_POOL), megabytes=16),
    "qwen3-next": offloaded(recurrent("qwen3-next", {**QWEN, **FEW_BLOCKS}), megabytes=16),
}
WITH_WINDOWS = {"gemma": offloaded(Job("gemma", {"num_gpu_blocks_override": 150}), megabytes=16)}
LONG_OFFLOADED_JOBS = {
    f"{name}, three times as long": three_times_as_long(job)
    for name, job in (OFFLOADED_JOBS | WITH_WINDOWS).items()
}

RECURRENT_JOBS = {
    "qwen3-next": JOBS["qwen3-next"],
    "qwen3-next-preempted": recurrent(
        "qwen3-next", {**QWEN, **FEW_BLOCKS}, counters=PREEMPTED, seen=("preempted",)
    ),
    "qwen3-next-partial-hits-preempted": recurrent(
        "qwen3-next",
        {**QWEN, **PARTIAL_HITS, **FEW_BLOCKS},
        counters=PREEMPTED,
        seen=("preempted", "copies"),
    ),
    "qwen3-next-uncached-ngram": recurrent(
        "qwen3-next",
        {**QWEN, **ONE_DRAFT, "enable_prefix_caching": False},
        counters=("spec_decode_num_draft_tokens",),
    ),
    "granite": recurrent("granite", {**RECURRENT, **ONE_BLOCK_A_STEP}),
    "falcon": recurrent("falcon", {**RECURRENT, **ONE_BLOCK_A_STEP}),
    "lfm2": recurrent("lfm2", RECURRENT),
    "mamba2": recurrent("mamba2", {**RECURRENT, **ONE_BLOCK_A_STEP, "enable_prefix_caching": True}),
}
LONG_JOBS |= {
    f"{name}, three times as long": three_times_as_long(job) for name, job in RECURRENT_JOBS.items()
}
