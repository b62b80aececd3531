"""``python -m tests.engine.served_agents``: compares the default policy with ``adaptive`` and its
hints in vLLM's server, for agents.

Agents over HTTP send back the answers that they got, with the results of their tools. The next turn
of an agent arrives after its answer, and a new agent begins when another one is over. A seed
determines the order of all turns.

One server has vLLM's own manager (``KVOXIDE=off``). Another one caches a state at each block, so
that hits end elsewhere; it shows how many tokens differ for this reason. The others have
``adaptive``, without and with sessions and hints. All serve the same agents with an empty cache,
but ``adaptive`` keeps what it learnt. Servers with a slash in their names have CPU memory; they are
named after the policies of GPU and CPU memory.
"""

import argparse
import heapq
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.testing.preloaded import folder_for_servers
from tests.testing.vllm_releases import EVERY_RELEASE, NEWEST

from .jobs import QWEN, STATE_BLOCK_SIZE, host_memory
from .recurrent import write_recurrent_models
from .server import Server, serving
from .workload import random_tokens

MODEL: Final = "qwen3-next"
MAX_MODEL_LEN: Final = 8192
OPTIONS: Final = QWEN | {
    "data_parallel_size": 1,
    "max_model_len": MAX_MODEL_LEN,
    "hf_overrides": json.dumps({"max_position_embeddings": MAX_MODEL_LEN}),
    "max_num_seqs": 8,
}
HEADINGS: Final = (
    "| blocks | run | server | requests | cached tokens | cached % | same prompts | other tokens "
    "| of these after the same hit |"
)
EVERY_STATE: Final = {"prefix_cache_retention_interval": STATE_BLOCK_SIZE}
ADAPTIVE: Final = {"KVOXIDE_POLICY": "adaptive"}
OVER_BOTH: Final = ADAPTIVE | {"KVOXIDE_HOST": "require", "KVOXIDE_HOST_POLICY": "adaptive"}


@dataclass(frozen=True)
class Agents:
    """Lengths are in tokens, and are the maximum of what is drawn. The shares are of all agents."""

    seed: int
    num: int = 40
    at_once: int = 8
    """Agents that are not over."""
    turns: int = 12
    system: int = 1024
    num_systems: int = 4
    result: int = 500
    answer: int = 40
    lost: float = 0.2
    """Agents that stop without the end of their session."""
    compressing: float = 0.3
    """Agents that replace their context by a summary after half of their turns."""

    @property
    def longest(self) -> int:
        """The longest prompt with its answer."""
        return self.system + self.turns * (self.result + self.answer)


assert Agents(seed=0).longest < MAX_MODEL_LEN


@dataclass(frozen=True)
class Compared:
    """A server that is compared, whether its agents send sessions and hints, and whether it has CPU
    memory."""

    mode: str
    variables: dict[str, str]
    has_hints: bool
    options: Mapping[str, Any] = field(default_factory=dict)
    has_host_memory: bool = False


SERVERS: Final = {
    "default": Compared("off", {}, has_hints=False),
    "default, every state": Compared("off", {}, has_hints=False, options=EVERY_STATE),
    "adaptive": Compared("require", ADAPTIVE, has_hints=False),
    "adaptive, hints": Compared("require", ADAPTIVE, has_hints=True),
    "default/lru": Compared("off", {}, has_hints=False, has_host_memory=True),
    "adaptive/lru": Compared("require", ADAPTIVE, has_hints=False, has_host_memory=True),
    "adaptive/adaptive": Compared("require", OVER_BOTH, has_hints=False, has_host_memory=True),
}


@dataclass(frozen=True)
class Answer:
    """The answer to a turn of an agent."""

    agent: int
    turn: int
    prompt: list[int]
    tokens: list[int]
    num_prompt_tokens: int
    num_cached_tokens: int


@dataclass
class Agent:
    """An agent, with the tokens of its context."""

    number: int
    rng: random.Random
    plan: Agents
    system: list[int]
    said: list[int]
    num_turns: int
    is_lost: bool
    compresses: bool
    turn: int = 0

    @classmethod
    def drawn(cls, number: int, plan: Agents, systems: Sequence[list[int]]) -> "Agent":
        rng = random.Random(plan.seed * 1_000 + number)
        system = rng.choice(systems)
        num_turns = rng.randint(2, plan.turns)
        is_lost, compresses = rng.random() < plan.lost, rng.random() < plan.compressing
        return cls(number, rng, plan, system, [*system], num_turns, is_lost, compresses)

    @property
    def is_over(self) -> bool:
        return self.turn == self.num_turns

    def next_request(self) -> tuple[list[int], int]:
        """Return the prompt of the next turn and the length of its answer."""
        rng = self.rng
        if self.compresses and self.turn == self.num_turns // 2:
            self.said = self.system + random_tokens(rng, self.plan.result)
        self.said = self.said + random_tokens(rng, rng.randint(20, self.plan.result))
        self.turn += 1
        return self.said, rng.randint(8, self.plan.answer)

    def hints(self) -> dict[str, Any]:
        """Return the session and the hints of the present turn, as fields of a request."""
        fields: dict[str, Any] = {"session_id": f"agent {self.number}"}
        if self.turn == 1:
            payload = {"priority": 80, "ttl": 600, "end": len(self.system)}
            fields["vllm_xargs"] = {"kvoxide_hints": _envelope("retain", payload)}
        if self.is_over and not self.is_lost:
            fields["vllm_xargs"] = {"kvoxide_session_end": True}
        return fields


def _envelope(kind: str, payload: dict[str, Any]) -> str:
    action = {"action_id": "1", "action_type": kind, "action_version": "0.1", "payload": payload}
    return json.dumps({"protocol_version": "0.1", "message_id": "1", "actions": [action]})


def converse(url: str, plan: Agents, *, has_hints: bool, num_together: int) -> list[Answer]:
    """Let all agents take their turns, ``num_together`` requests at a time."""
    client = import_module("openai").OpenAI(base_url=f"{url}/v1", api_key="unused")
    answers: list[Answer] = []
    with ThreadPoolExecutor(num_together) as pool:

        def ask(agent: Agent) -> Answer:
            prompt, max_tokens = agent.next_request()
            more = agent.hints() if has_hints else {}
            answer = client.completions.create(
                model=MODEL,
                prompt=prompt,
                max_tokens=max_tokens,
                temperature=0,
                extra_body={"ignore_eos": True, "return_token_ids": True, **more},
            )
            tokens = answer.choices[0].token_ids
            agent.said = agent.said + tokens
            cached = answer.usage.prompt_tokens_details.cached_tokens
            num_prompt = answer.usage.prompt_tokens
            return Answer(agent.number, agent.turn, prompt, tokens, num_prompt, cached)

        for agents in _in_order(plan, num_together):
            answers += pool.map(ask, agents)
    return sorted(answers, key=lambda answer: (answer.agent, answer.turn))


def _in_order(plan: Agents, num_together: int) -> Iterator[list[Agent]]:
    """Yield the agents whose turns come next. A turn comes after the answer before it and the time
    of a tool. Times are drawn, so that all servers get the same order."""
    rng = random.Random(plan.seed)
    systems = [random_tokens(rng, plan.system) for _ in range(plan.num_systems)]
    numbers = iter(range(plan.num))
    waiting: list[tuple[float, int, Agent]] = []

    def add(agent: Agent | None, now: float) -> None:
        if agent is None or agent.is_over:
            number = next(numbers, None)
            if number is None:
                return
            agent = Agent.drawn(number, plan, systems)
        # Some tools take much longer than others.
        heapq.heappush(waiting, (now + rng.expovariate(1) ** 2, agent.number, agent))

    for _ in range(plan.at_once):
        add(None, 0.0)
    while waiting:
        taken = [heapq.heappop(waiting) for _ in range(min(num_together, len(waiting)))]
        yield [agent for _, _, agent in taken]
        for now, _, agent in taken:
            add(agent, now + 1.0)


def main() -> int:
    arguments = _parser().parse_args()
    print(HEADINGS)
    print("|---" * HEADINGS.count(" | ") + "|---|")
    with tempfile.TemporaryDirectory() as folder, folder_for_servers():
        write_recurrent_models(Path(folder))
        for blocks in arguments.blocks:
            _compare(blocks, arguments, Path(folder))
    return 0


def _compare(blocks: int, arguments: argparse.Namespace, folder: Path) -> None:
    together = arguments.together
    plan = Agents(seed=1, num=arguments.agents, at_once=arguments.at_once)
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(_serving(name, arguments, blocks, folder))
            for name in arguments.servers
        }
        for name, server in servers.items():
            server.wait_until_it_serves()
            few = replace(plan, seed=99, num=2)
            hints = SERVERS[name].has_hints
            converse(server.url, few, has_hints=hints, num_together=together)
        for run in range(1, arguments.runs + 1):
            first: list[Answer] = []
            for name, server in servers.items():
                server.reset_prefix_cache(with_host_memory=SERVERS[name].has_host_memory)
                of_run = replace(plan, seed=run)
                hints = SERVERS[name].has_hints
                answers = converse(server.url, of_run, has_hints=hints, num_together=together)
                first = first or answers
                print(f"| {blocks} | {run} | {name} | {_figures(answers, first)} |", flush=True)
        for name, server in servers.items():
            for metric, count in server.metrics("kvoxide_hints_total").items():
                if count:
                    print(f"{name}: {metric} {count:.0f}", file=sys.stderr)


def _serving(
    name: str, arguments: argparse.Namespace, blocks: int, folder: Path
) -> AbstractContextManager[Server]:
    log = folder / f"{name.replace('/', ' ')} {blocks}.log"
    served, release = SERVERS[name], arguments.release
    options = {**OPTIONS, "num_gpu_blocks_override": blocks, **served.options}
    if served.has_host_memory:
        options |= {"kv_transfer_config": json.dumps(host_memory(arguments.host_memory))}
    return serving(
        MODEL, served.mode, release, folder, log, options, served.variables, is_new=False
    )


def _figures(answers: Sequence[Answer], first: Sequence[Answer]) -> str:
    cached = sum(answer.num_cached_tokens for answer in answers)
    prompts = sum(answer.num_prompt_tokens for answer in answers)
    pairs = [
        (one, two) for one, two in zip(answers, first, strict=True) if one.prompt == two.prompt
    ]
    others = [(one, two) for one, two in pairs if one.tokens != two.tokens]
    same_hit = sum(one.num_cached_tokens == two.num_cached_tokens for one, two in others)
    share = f"{100 * cached / prompts:.1f}"
    return f"{len(answers)} | {cached:,} | {share} | {len(pairs)} | {len(others)} | {same_hit}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.engine.served_agents", description=__doc__)
    blocks: dict[str, Any] = {"type": int, "nargs": "+", "default": [60], "metavar": "N"}
    parser.add_argument("--blocks", **blocks, help="of the pool")
    names: dict[str, Any] = {
        "nargs": "+",
        "default": [name for name, server in SERVERS.items() if not server.has_host_memory],
        "choices": SERVERS,
        "metavar": "NAME",
    }
    parser.add_argument("--servers", **names, help="that are compared with the first one")
    memory = "CPU memory of each server that has it; %(default)s by default"
    parser.add_argument("--host-memory", type=int, default=64, metavar="MIB", help=memory)
    parser.add_argument("--agents", type=int, default=20, help="in a run")
    parser.add_argument("--at-once", type=int, default=8, help="agents that are not over")
    parser.add_argument("--together", type=int, default=1, help="requests at a time")
    parser.add_argument("--release", choices=EVERY_RELEASE, default=NEWEST, help="of vLLM")
    parser.add_argument("--runs", type=int, default=3, help="of each server")
    return parser


if __name__ == "__main__":
    sys.exit(main())
