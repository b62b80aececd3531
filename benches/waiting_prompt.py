"""Measures a long prompt that waits while requests decode, on vLLM's engine on the CPU:

    python -m benches.waiting_prompt [--tokens 200000] [--json FILE]

The prompt was computed before, so it is cached, and the pool has no room to admit it. Therefore
vLLM's scheduler looks it up again at every step. Steps are timed with and without it, by an engine
with ``KVOXIDE=off`` and one with ``require``, each in a process of its own.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from .sides import require_side

BLOCK_SIZE = 32
CHUNK = 8192
DECODING_REQUESTS = 64
DECODING_PROMPT = 64
STEPS = 60
WARM_UP_STEPS = 10
# The decoding requests take more than this, so the long prompt does not fit in addition.
SPARE_BLOCKS = 40


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.engine:
        print(json.dumps(_measure(arguments.engine, arguments.tokens)))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = _write_model(Path(folder) / "llama", arguments.tokens)
        measured = {mode: _run_engine(mode, model, arguments.tokens) for mode in ("off", "require")}
    for mode, steps in measured.items():
        alone, beside = steps["alone_ms"], steps["waiting_ms"]
        print(
            f"KVOXIDE={mode:7} median step {alone:.2f} ms alone, {beside:.2f} ms beside a waiting "
            f"prompt of {arguments.tokens:,} tokens: {beside / alone:.2f} times; in the manager's "
            f"look-up {steps['look_up_ms']:.3f} ms a step"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benches.waiting_prompt", description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000, help="length of the waiting prompt")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--engine", metavar="MODEL", help=argparse.SUPPRESS)
    return parser


def _write_model(path: Path, tokens: int) -> Path:
    transformers = import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=tokens + CHUNK,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )
    config.save_pretrained(path)
    return path


def _run_engine(mode: str, model: Path, tokens: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benches.waiting_prompt", "--engine", str(model)]
    environment = {
        **os.environ,
        "KVOXIDE": mode,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    done = subprocess.run(
        [*command, "--tokens", str(tokens)], env=environment, stdout=subprocess.PIPE, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _measure(model: str, tokens: int) -> dict[str, float]:
    engine = _start_engine(model, tokens)
    require_side(engine)
    _serve_to_its_end(engine, "long", tokens)
    for index in range(DECODING_REQUESTS):
        _add(engine, f"decoding-{index}", DECODING_PROMPT, 4 * STEPS, first=index)
    look_ups = _timed_look_ups(engine)
    gc.disable()
    alone = _steps(engine)
    _add(engine, "waiting", tokens, 1)
    look_ups.clear()
    beside = _steps(engine)
    if _manager(engine).get_block_ids("waiting")[0] or not look_ups:
        raise SystemExit("the long prompt was admitted, or never looked up: nothing was measured")
    return {
        "alone_ms": statistics.median(alone) * 1e3,
        "waiting_ms": statistics.median(beside) * 1e3,
        "look_up_ms": statistics.median(look_ups) * 1e3,
    }


def _start_engine(model: str, tokens: int) -> Any:
    vllm = import_module("vllm")
    arguments = vllm.EngineArgs(
        model=model,
        dtype="float32",
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        block_size=BLOCK_SIZE,
        max_model_len=tokens + CHUNK,
        max_num_batched_tokens=CHUNK,
        max_num_seqs=2 * DECODING_REQUESTS,
        num_gpu_blocks_override=(tokens + CHUNK) // BLOCK_SIZE + SPARE_BLOCKS,
    )
    return import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(arguments)


def _serve_to_its_end(engine: Any, name: str, tokens: int) -> None:
    _add(engine, name, tokens, 1)
    while engine.has_unfinished_requests():
        engine.step()


def _add(engine: Any, name: str, tokens: int, num_output: int, first: int = 0) -> None:
    sampling = import_module("vllm").SamplingParams(
        max_tokens=num_output, ignore_eos=True, detokenize=False, temperature=0
    )
    prompt = [3 + (first + index * 7) % 500 for index in range(tokens)]
    engine.add_request(name, {"prompt_token_ids": prompt}, sampling)


def _timed_look_ups(engine: Any) -> list[float]:
    """Return a list to which the manager's look-ups add their times in seconds from now on."""
    manager = _manager(engine)
    original = manager.get_computed_blocks
    seconds: list[float] = []

    def look_up(request: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        found = original(request, *arguments)
        seconds.append(time.perf_counter() - start)
        return found

    manager.get_computed_blocks = look_up
    return seconds


def _manager(engine: Any) -> Any:
    return engine.engine_core.engine_core.scheduler.kv_cache_manager


def _steps(engine: Any) -> list[float]:
    seconds = []
    for index in range(WARM_UP_STEPS + STEPS):
        start = time.perf_counter()
        engine.step()
        if index >= WARM_UP_STEPS:
            seconds.append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    main()
