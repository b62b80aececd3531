"""Measures step times of vLLM's engine on CUDA while a long prompt is loaded from host memory.

Run ``python -m benches.offloaded_prompt llama|gemma`` in an environment with vLLM and
kvoxide, once with ``KVOXIDE=off`` and once with ``KVOXIDE=require KVOXIDE_HOST=require``. A prompt
of 500,000 tokens is prefilled. Another takes its place on the GPU while 64 requests decode. The
first is loaded from the host, and hit again on the GPU. Weights are vLLM's dummy ones, so tokens
prove nothing here.
"""

import os
import random
import statistics
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}

from transformers import Gemma3TextConfig, LlamaConfig
from vllm import EngineArgs, LLMEngine, SamplingParams

from .sides import require_side

LENGTH = 500_000
DECODES = 64
ANSWER = 8
HOST_GIB = 8
SIZES = {
    "vocab_size": 512,
    "hidden_size": 512,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1 << 20,
    "dtype": "bfloat16",
}
# Room for one long prompt and the decoding requests, and for a fifth of another prompt.
BLOCKS = {"llama": 39_170, "gemma": 55_610}


def main() -> None:
    name = sys.argv[1]
    random.seed(1)
    first, other = random_tokens(LENGTH), random_tokens(LENGTH)
    engine = Timed(start_engine(name, write_config(name)))
    require_side(engine.engine)
    engine.report("prefilled and stored, alone", engine.answer("first", first))
    for at in range(DECODES):
        engine.add(f"decode {at}", random_tokens(64), 4_000)
    engine.steps(20)
    engine.report(f"{DECODES} decodes alone", engine.steps(200))
    engine.report("another takes its place", engine.answer("other", other))
    engine.steps(20)
    engine.report("it comes back from the host", engine.answer("back", first))
    engine.report("the 20 steps after", engine.steps(20))
    engine.report("again, from the GPU", engine.answer("hit", first))
    engine.report("the 20 steps after", engine.steps(20))
    print("cached tokens:", {name: engine.cached[name] for name in ("other", "back", "hit")})


def random_tokens(num: int) -> list[int]:
    return [random.randrange(3, 500) for _ in range(num)]


def write_config(name: str) -> Path:
    path = Path(mkdtemp()) / name
    if name == "llama":
        config = LlamaConfig(num_hidden_layers=4, architectures=["LlamaForCausalLM"], **SIZES)
    else:
        config = Gemma3TextConfig(
            num_hidden_layers=6,
            head_dim=64,
            sliding_window=1024,
            architectures=["Gemma3ForCausalLM"],
            **SIZES,
        )
    config.save_pretrained(path)
    return path


def start_engine(name: str, path: Path) -> Any:
    arguments = EngineArgs(
        model=str(path),
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=520_000,
        max_num_batched_tokens=8_192,
        max_num_seqs=128,
        gpu_memory_utilization=0.5,
        num_gpu_blocks_override=BLOCKS[name],
        kv_offloading_size=HOST_GIB,
        compilation_config={
            "custom_ops": ["none"],
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [1, DECODES, DECODES + 8],
        },
    )
    return LLMEngine.from_engine_args(arguments)


class Timed:
    """An engine whose steps are timed."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.num_answered: dict[str, int] = {}
        self.cached: dict[str, int] = {}

    def add(self, name: str, tokens: list[int], num_tokens: int) -> None:
        params = SamplingParams(
            max_tokens=num_tokens, temperature=0, detokenize=False, ignore_eos=True
        )
        self.engine.add_request(name, {"prompt_token_ids": tokens}, params)

    def answer(self, name: str, tokens: list[int]) -> list[float]:
        """Return the milliseconds of each step until the prompt is answered."""
        self.add(name, tokens, ANSWER)
        times = []
        while self.num_answered.get(name, 0) < ANSWER:
            times.append(self.step())
        return times

    def steps(self, num: int) -> list[float]:
        return [self.step() for _ in range(num)]

    def step(self) -> float:
        start = time.perf_counter()
        outputs = self.engine.step()
        taken = time.perf_counter() - start
        for output in outputs:
            self.num_answered[output.request_id] = len(output.outputs[0].token_ids)
            self.cached[output.request_id] = output.num_cached_tokens
        return 1e3 * taken

    def report(self, what: str, times: list[float]) -> None:
        print(
            f"{what:32} {len(times):4} steps, ms: median {statistics.median(times):7.2f}, "
            f"longest {max(times):8.2f}, sum {sum(times):9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
