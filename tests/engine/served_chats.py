"""``python -m tests.engine.served_chats``: compares the default policy and ``adaptive`` in vLLM's
server, without CPU memory or with it.

Chat clients over HTTP send back the answers that they got. All servers stay up, and serve the same
chats in turns. The cache is empty each time, but ``adaptive`` keeps what it learnt.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.testing.preloaded import folder_for_servers
from tests.testing.vllm_releases import EVERY_RELEASE, NEWEST

from .jobs import QWEN, host_memory
from .load import Answer, Chats, chat
from .models import MAX_POSITIONS, write_slow_gemma, write_slow_llama
from .recurrent import write_recurrent_models
from .server import Server, serving

ADAPTIVE: Final = {"KVOXIDE_POLICY": "adaptive"}
ON_GPU: Final[dict[str, dict[str, str]]] = {"default": {}, "adaptive": ADAPTIVE}
# The policies of GPU and CPU memory.
ON_BOTH: Final[dict[str, dict[str, str]]] = {
    "default/lru": {},
    "adaptive/lru": ADAPTIVE,
    "adaptive/adaptive": ADAPTIVE | {"KVOXIDE_HOST": "require", "KVOXIDE_HOST_POLICY": "adaptive"},
}
CHATS: Final = Chats(
    seed=1, num=40, per_second=5.0, turns=6, pause=2.0, system=200, message=250, answer=40
)
assert CHATS.longest < MAX_POSITIONS
COMMON: Final = {"data_parallel_size": 1, "max_model_len": MAX_POSITIONS, "max_num_seqs": 8}


@dataclass(frozen=True)
class Model:
    """A kind of model: how it is written into a folder of models, and how it is served."""

    name: str
    write: Callable[[Path], None]
    blocks: int
    options: dict[str, Any]


MODELS: Final = {
    "llama": Model("slow-llama", lambda root: write_slow_llama(root / "slow-llama"), 210, {}),
    "gemma": Model("slow-gemma", lambda root: write_slow_gemma(root / "slow-gemma"), 1270, {}),
    "qwen3-next": Model("qwen3-next", write_recurrent_models, 60, QWEN),
}


def main() -> int:
    arguments = _parser().parse_args()
    print("| model | blocks | run | policies | cached % | first token p50 ms | p99 ms | requests |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, folder_for_servers():
        for name in arguments.models.split(","):
            _compare(name, arguments, Path(folder))
    return 0


def _compare(name: str, arguments: argparse.Namespace, folder: Path) -> None:
    model = MODELS[name]
    model.write(folder)
    blocks = arguments.blocks or model.blocks
    options = COMMON | model.options | {"num_gpu_blocks_override": blocks}
    compared = ON_GPU
    if arguments.host_memory:
        options |= {"kv_transfer_config": json.dumps(host_memory(arguments.host_memory))}
        compared = ON_BOTH
    with ExitStack() as stack:
        servers = {
            policies: stack.enter_context(
                _serving(model, policies, arguments.release, options, folder)
            )
            for policies in compared
        }
        for server in servers.values():
            server.wait_until_it_serves()
            chat(server.url, model.name, replace(CHATS, num=4))
        for run in range(1, arguments.runs + 1):
            answers = {}
            for policies, server in servers.items():
                server.reset_prefix_cache(with_host_memory=bool(arguments.host_memory))
                chats = replace(CHATS, seed=run)
                answered = chat(server.url, model.name, chats, in_order=arguments.in_order)
                answers[policies] = _sorted(answered)
                figures = _figures(answers[policies])
                print(f"| {name} | {blocks} | {run} | {policies} | {figures} |", flush=True)
            _tell_differences(answers)


def _serving(
    model: Model, policies: str, release: str, options: dict[str, Any], folder: Path
) -> AbstractContextManager[Server]:
    variables = (ON_GPU | ON_BOTH)[policies]
    log = folder / f"{model.name} {policies.replace('/', ' ')}.log"
    return serving(model.name, "require", release, folder, log, options, variables, is_new=False)


def _sorted(answers: Sequence[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda answer: (answer.chat, answer.turn))


def _figures(answers: Sequence[Answer]) -> str:
    cached = sum(answer.num_cached_tokens for answer in answers)
    prompts = sum(answer.num_prompt_tokens for answer in answers)
    p50, p99 = np.percentile([answer.first_token for answer in answers], [50, 99]) * 1000
    return f"{100 * cached / prompts:.1f} | {p50:.0f} | {p99:.0f} | {len(answers)}"


def _tell_differences(answers: Mapping[str, Sequence[Answer]]) -> None:
    (name, first), *others = answers.items()
    for other, compared in others:
        num = sum(one.tokens != two.tokens for one, two in zip(first, compared, strict=True))
        if num:
            told = f"{num} of {len(first)} answers have other tokens with {other} than with {name}"
            print(told, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.engine.served_chats", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS), metavar="NAME,...")
    parser.add_argument("--blocks", type=int, help="of the pool, instead of a third of the chats")
    memory = "CPU memory of each server, with policies of its own; none by default"
    parser.add_argument("--host-memory", type=int, default=0, metavar="MIB", help=memory)
    parser.add_argument("--release", choices=EVERY_RELEASE, default=NEWEST, help="of vLLM")
    order = "ask each turn after the answer to the one before, so that the seed alone orders them"
    parser.add_argument("--in-order", action="store_true", help=order)
    parser.add_argument("--runs", type=int, default=3, help="of each policy")
    return parser


if __name__ == "__main__":
    sys.exit(main())
