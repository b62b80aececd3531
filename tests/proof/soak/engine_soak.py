"""Sends requests through the scheduler of a running engine, vLLM's on the CPU, in this process.

This program drives the core of the engine directly. The conversion between text and tokens does not
concern kvoxide, and costs more than everything here.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from .memory import Soak
from .prompts import FIRST_ORDINARY_TOKEN, LONGEST, VOCABULARY, Prompts

BLOCK_SIZE = 32
WINDOW = 64
MOST_OUTPUT = 3
MAX_MODEL_LEN = -(-(LONGEST + MOST_OUTPUT) // BLOCK_SIZE) * BLOCK_SIZE
MAX_RUNNING = 256
IN_FLIGHT = 384
TOKENS_PER_STEP = 8192
# Prompts are computed piece by piece. They are admitted by their first piece, and later need more
# blocks than there are, so some are preempted.
PREFILL_PIECE = 64
NUM_BLOCKS = 600
ABORTS_PER_STEP = 4

WANTED = (
    "requests that ended by themselves",
    "requests aborted while running",
    "requests aborted while waiting",
    "preemptions by the scheduler",
    "preemptions for a reset",
    "resets granted",
    "resets refused",
    "tokens hit",
    "events BlockStored",
    "events BlockRemoved",
    "events AllBlocksCleared",
)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    # oneDNN keeps compiled code for each number of tokens in a step, at first a megabyte per step.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0",
    "LRU_CACHE_CAPACITY": "0",
}


def run(
    requests: int,
    every: int,
    seed: int,
    mode: str,
    file: Path | None,
    *,
    steps_between_resets: int,
) -> int:
    """Serve ``requests`` with ``KVOXIDE=mode``, report after each ``every``, and return the exit
    status."""
    os.environ.update(ENVIRONMENT, KVOXIDE=mode)
    with tempfile.TemporaryDirectory() as folder:
        core = start_core(write_model(Path(folder) / "model"))
    soak = Soak(f"engine, KVOXIDE={mode}", seed, versions(core))
    print(soak.name, soak.versions)
    server = Server(core, Random(seed), soak.counters, steps_between_resets)
    for served in range(every, requests + 1, every):
        server.serve_until(served)
        check_invariants(core)
        soak.report(served)
    return soak.finish(soak.failures(WANTED), file)


def write_model(path: Path) -> Path:
    """Write a model with a layer of full attention and one with a sliding window, and return its
    path."""
    transformers = import_module("transformers")
    config = transformers.Gemma3TextConfig(
        vocab_size=FIRST_ORDINARY_TOKEN + VOCABULARY + 9,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=WINDOW,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_MODEL_LEN,
        architectures=["Gemma3ForCausalLM"],
        dtype="float32",
    )
    config.save_pretrained(path)
    return path


def start_core(model: Path) -> Any:
    vllm = import_module("vllm")
    events = import_module("vllm.config").KVEventsConfig(
        enable_kv_cache_events=True, publisher="null"
    )
    arguments = vllm.EngineArgs(
        model=str(model),
        dtype="float32",
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        block_size=BLOCK_SIZE,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=TOKENS_PER_STEP,
        max_num_seqs=MAX_RUNNING,
        long_prefill_token_threshold=PREFILL_PIECE,
        scheduler_reserve_full_isl=False,
        num_gpu_blocks_override=NUM_BLOCKS,
        kv_events_config=events,
        disable_log_stats=False,
    )
    engine = import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(arguments)
    return engine.engine_core.engine_core


def versions(core: Any) -> dict[str, str]:
    manager = type(core.scheduler.kv_cache_manager)
    return {
        "vllm": import_module("vllm").__version__,
        "kvoxide": import_module("kvoxide").__version__,
        "manager": f"{manager.__module__}.{manager.__qualname__}",
    }


def check_invariants(core: Any) -> None:
    engine = getattr(core.scheduler.kv_cache_manager, "engine", None)
    if engine is not None:
        engine.check_invariants()


class Server:
    """Keeps a core busy, and makes disturbing calls."""

    def __init__(
        self, core: Any, rng: Random, counters: Counter[str], steps_between_resets: int
    ) -> None:
        self.core = core
        self.scheduler = core.scheduler
        self.rng = rng
        self.counters = counters
        self.steps_between_resets = steps_between_resets
        self.prompts = Prompts(rng)
        self.in_flight: dict[str, Any] = {}
        self.num_added = self.num_ended = self.num_steps = 0
        self.sampling = list(sampling_params())
        self.running = import_module("vllm.v1.request").RequestStatus.RUNNING
        self.request_class = import_module("vllm.v1.engine").EngineCoreRequest
        self.scheduler.kv_event_publisher = EventCounter(counters)

    def serve_until(self, num_ended: int) -> None:
        """Continue until this many requests have ended since the start."""
        while self.num_ended < num_ended:
            self.add()
            self.abort()
            num_resets, left = divmod(self.num_steps, self.steps_between_resets)
            if left == 0:
                self.reset(preempt=num_resets % 2 == 0)
            self.step()

    def add(self) -> None:
        while len(self.in_flight) < IN_FLIGHT:
            name = f"request-{self.num_added}"
            request, wave = self.core.preprocess_add_request(
                self.request_class(
                    request_id=name,
                    prompt_token_ids=self.prompts.draw(self.num_added),
                    mm_features=None,
                    sampling_params=self.sampling[self.num_added % MOST_OUTPUT],
                    pooling_params=None,
                    arrival_time=float(self.num_added),
                    lora_request=None,
                    cache_salt=None,
                    data_parallel_rank=None,
                )
            )
            self.core.add_request(request, wave)
            self.in_flight[name] = request
            self.num_added += 1

    def abort(self) -> None:
        names = self.rng.sample(list(self.in_flight), self.rng.randint(0, ABORTS_PER_STEP))
        for name in names:
            running = self.in_flight[name].status == self.running
            self.counters[f"requests aborted while {'running' if running else 'waiting'}"] += 1
        self.core.abort_requests(names)
        for name in names:
            self.end(name)

    def reset(self, preempt: bool) -> None:
        num_running = len(self.scheduler.running)
        if self.core.reset_prefix_cache(reset_running_requests=preempt):
            self.counters["resets granted"] += 1
        else:
            self.counters["resets refused"] += 1
        if preempt:
            self.counters["preemptions for a reset"] += num_running
            self.counters["preemptions by the scheduler"] -= num_running

    def step(self) -> None:
        outputs_by_client, _ = self.core.step_fn()
        self.num_steps += 1
        self.counters["steps"] += 1
        for outputs in outputs_by_client.values():
            self.count_hits(outputs.scheduler_stats)
            for output in outputs.outputs:
                if output.finished:
                    self.counters["requests that ended by themselves"] += 1
                    self.end(output.request_id)

    def count_hits(self, stats: Any) -> None:
        if stats is not None and stats.prefix_cache_stats is not None:
            self.counters["tokens looked up"] += stats.prefix_cache_stats.queries
            self.counters["tokens hit"] += stats.prefix_cache_stats.hits

    def end(self, name: str) -> None:
        request = self.in_flight.pop(name)
        self.counters["preemptions by the scheduler"] += request.num_preemptions
        self.num_ended += 1


def sampling_params() -> Iterator[Any]:
    for max_tokens in range(1, MOST_OUTPUT + 1):
        yield import_module("vllm").SamplingParams(
            max_tokens=max_tokens, ignore_eos=True, detokenize=False, temperature=0
        )


class EventCounter:
    """Takes the place of the scheduler's publisher of KV events."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters

    def publish(self, batch: Any) -> None:
        self._counters.update(f"events {type(event).__name__}" for event in batch.events)

    def shutdown(self) -> None:
        pass

    def get_publisher_config(self) -> None:
        return None
