"""Tests of a server with adaptive retention, started as users start it: requests over HTTP, and the
lines of its log."""

import json
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tests.testing.vllm_environments import OLDER_IF_LONG, write_plugins

from .jobs import BLOCK_SIZE, MAX_MODEL_LEN
from .processes import engine_environment
from .server import ONE_PROCESS, ONE_PROCESS_VARIABLES, Server, serving
from .test_http import Client, Service
from .workload import random_tokens

POOL: Final = {"num_gpu_blocks_override": 64}
# A sixteenth of the pool. A quarter of the pool may be protected.
KEPT_BLOCKS: Final = 4
LONGEST_BLOCKS: Final = MAX_MODEL_LEN // BLOCK_SIZE - 1
# This many of the longest prompts take more room than the pool has.
FLOOD: Final = 5
LINE_TIMEOUT: Final = 30


def action(kind: str, **payload: Any) -> dict[str, Any]:
    return {"action_id": "a", "action_type": kind, "action_version": "0.1", "payload": payload}


def hints(*actions: dict[str, Any]) -> dict[str, Any]:
    envelope = {"protocol_version": "0.1", "message_id": "m", "actions": actions}
    return {"kvoxide_hints": json.dumps(envelope)}


KEEPING: Final[Mapping[str, dict[str, Any]]] = {
    "priority": {"kvoxide_priority": 80},
    "priority and time": {"kvoxide_priority": 80, "kvoxide_ttl": 600},
    "priority of a range": {
        "kvoxide_priority": 80,
        "kvoxide_priority_ranges": [0, KEPT_BLOCKS * BLOCK_SIZE],
    },
    "retained": hints(action("retain", priority=80, ttl=600, end=KEPT_BLOCKS * BLOCK_SIZE)),
}
LOSING: Final[Mapping[str, dict[str, Any]]] = {
    "nothing": {},
    "the default": {"kvoxide_priority": 50, "kvoxide_ttl": 600},
    "time that has gone by": {"kvoxide_priority": 80, "kvoxide_ttl": 0.001},
    "no time": {"kvoxide_priority": 80, "kvoxide_ttl": 0},
    "the end of a session": {"kvoxide_priority": 80, "kvoxide_session_end": True},
    "released": hints(action("retain", priority=80), action("release")),
}
IGNORED: Final[Mapping[str, dict[str, Any]]] = {
    "too high": {"kvoxide_priority": 101},
    "too low": {"kvoxide_priority": -1, "kvoxide_ttl": 600},
    "a word": {"kvoxide_priority": "high"},
    "hints that are no JSON": {"kvoxide_hints": "{"},
}
# vLLM itself refuses these in vllm_xargs.
REFUSED: Final[Mapping[str, Any]] = {
    "nothing at all": {"kvoxide_priority": None},
    "an object": {"kvoxide_priority": {"from": 80}},
    "no object": 80,
}

# Makes a minute a second, in each of the server's processes.
PLUGIN: Final = """
from kvoxide.vllm.adapter import retention_log

def hurry():
    assert retention_log.SECONDS == 60.0
    retention_log.SECONDS = 1.0
"""


@dataclass
class Round:
    """A prompt with wishes and one without, each before and after traffic that fills the pool."""

    first: dict[str, Any]
    again: dict[str, Any]
    plain_again: dict[str, Any]


@dataclass
class Asking:
    """Sends requests. ``counted`` has the prompt tokens and cached tokens of each, in order."""

    client: Client
    counted: list[tuple[int, int]] = field(default_factory=list)

    def ask(self, prompt: list[int], **asked: Any) -> dict[str, Any]:
        answer = self.client.ask(len(self.counted), prompt, max_tokens=4, **asked)
        self.counted.append((len(prompt), answer["cached"]))
        return answer

    def round(self, wish: dict[str, Any]) -> Round:
        """Play a round, with the same prompts each time. Only the first request of the first prompt
        has the wish."""
        wanted, plain, *flood = prompts([KEPT_BLOCKS, KEPT_BLOCKS, *[LONGEST_BLOCKS] * FLOOD])
        first = self.ask(wanted, vllm_xargs=wish)
        for prompt in (plain, *flood):
            self.ask(prompt)
        return Round(first, again=self.ask(wanted), plain_again=self.ask(plain))

    def beside_greed(self) -> list[int]:
        """Return the cached tokens of two prompts, asked again after requests that want the whole
        pool."""
        *greedy, one, other = prompts([LONGEST_BLOCKS] * (FLOOD + 2))
        for prompt in greedy:
            self.ask(prompt, vllm_xargs={"kvoxide_priority": 100})
        answers = [self.ask(prompt) for prompt in (one, other, one, other)]
        return [answer["cached"] for answer in answers[2:]]

    def refusal(self, wish: Any) -> str:
        with pytest.raises(import_module("openai").BadRequestError) as refused:
            self.client.ask(0, [7] * BLOCK_SIZE, max_tokens=1, vllm_xargs=wish)
        return str(refused.value)


def prompts(blocks: list[int]) -> list[list[int]]:
    """Return the same prompts each time, with these numbers of full blocks and one more token."""
    rng = random.Random(5)
    return [random_tokens(rng, num * BLOCK_SIZE + 1) for num in blocks]


@dataclass
class Served:
    """The behaviour of one server, and its log."""

    rounds: dict[str, Round]
    beside_greed: list[int]
    refusals: dict[str, str]
    counted: list[tuple[int, int]]
    exit_code: int
    left: list[int]
    log: str

    def lines(self, text: str) -> list[str]:
        return [line for line in self.log.splitlines() if text in line]


@pytest.fixture(scope="module", params=OLDER_IF_LONG)
def served(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Served:
    release = request.param
    folder = tmp_path_factory.mktemp("adaptive")
    plugins = folder / "plugins"
    write_plugins(plugins, {"hurry": "hurry_of_test:hurry"})
    (plugins / "hurry_of_test.py").write_text(PLUGIN)
    paths = engine_environment("adaptive", release, models, plugins)["PYTHONPATH"]
    options = {**POOL, **ONE_PROCESS, "data_parallel_size": 1}
    variables = {"PYTHONPATH": paths, **ONE_PROCESS_VARIABLES}
    log = folder / "log"
    started = serving("llama", "adaptive", release, models, log, options, variables, is_new=False)
    with started as server:
        server.wait_until_it_serves()
        return converse(server)


def converse(server: Server) -> Served:
    asking = Asking(Client(server.url, Service("llama")))
    refusals = {name: asking.refusal(wish) for name, wish in REFUSED.items()}
    rounds = {}
    for name, wish in {**IGNORED, **KEEPING, **LOSING}.items():
        rounds[name] = asking.round(wish)
        server.reset_prefix_cache()
    ask_until_it_is_told(server, asking)
    beside_greed = asking.beside_greed()
    ask_until_it_is_told(server, asking)
    return Served(
        rounds=rounds,
        beside_greed=beside_greed,
        refusals=refusals,
        counted=asking.counted,
        exit_code=server.stop(),
        left=server.running.members(),
        log=server.running.log.read_text(),
    )


def ask_until_it_is_told(server: Server, asking: Asking) -> None:
    """Ask until the log has a line about all requests so far. Lines are logged when steps begin."""
    log, num_lines = server.running.log, lines_told(server.running.log)
    deadline = time.monotonic() + LINE_TIMEOUT
    while lines_told(log) == num_lines:
        assert time.monotonic() < deadline, server.running.end_of_log()
        asking.ask([9] * 8)
        time.sleep(0.2)


def lines_told(log: Path) -> int:
    return log.read_text().count("kvoxide: adaptive retention: ")


def test_a_priority_over_http_keeps_a_prompt(served: Served) -> None:
    for name in KEEPING:
        assert served.rounds[name].again["cached"] == KEPT_BLOCKS * BLOCK_SIZE, name


def test_the_same_traffic_without_it_evicts_the_prompt(served: Served) -> None:
    for name in LOSING:
        assert served.rounds[name].again["cached"] == 0, name
    assert {each.plain_again["cached"] for each in served.rounds.values()} == {0}


def test_the_tokens_are_the_same(served: Served) -> None:
    answers = [each for round in served.rounds.values() for each in (round.first, round.again)]
    assert all(len(answer["tokens"]) == 4 for answer in answers)
    assert {tuple(answer["tokens"]) for answer in answers} == {tuple(answers[0]["tokens"])}


def test_who_wants_all_of_the_pool_leaves_the_others_three_quarters(served: Served) -> None:
    assert served.beside_greed == [LONGEST_BLOCKS * BLOCK_SIZE] * 2


def test_what_is_no_priority_is_served_without_one_and_told_once(served: Served) -> None:
    for name in IGNORED:
        assert served.rounds[name].again["cached"] == 0, name
    (told,) = served.lines("kvoxide: ignoring a malformed hint of a request: ")
    assert "WARNING" in told
    assert "kvoxide_priority is 101; it must be an integer from 0 to 100" in told
    (expired,) = served.lines("kvoxide: ignoring a hint that has expired: ")
    assert "kvoxide_ttl is 0;" in expired


def test_what_vllm_refuses_is_a_bad_request(served: Served) -> None:
    for text in served.refusals.values():
        assert "400" in text
        assert "vllm_xargs" in text


def test_each_interval_is_a_line_at_info_and_counts_what_clients_were_told(
    served: Served,
) -> None:
    lines = served.lines("kvoxide: adaptive retention: ")
    assert all("INFO" in line for line in lines)
    requests = iter(served.counted)
    for line in lines:
        found = re.search(r" prompt_tokens=(\d+) hit_rate=([\d.]+) ", line)
        assert found is not None, line
        num_tokens = num_cached = 0
        while num_tokens < int(found[1]):
            prompt, cached = next(requests)
            num_tokens, num_cached = num_tokens + prompt, num_cached + cached
        assert (str(num_tokens), f"{num_cached / num_tokens:.3f}") == (found[1], found[2])
    assert len(list(requests)) <= 1, "but the one in whose first step the last line was logged"


def test_the_lines_tell_evictions_and_what_vllms_order_would_have_kept(served: Served) -> None:
    lines = served.lines("kvoxide: adaptive retention: ")
    evicted = r"evicted_full_blocks=(\d+) evicted_tail_blocks=0 "
    evictions = [re.search(evicted, line) for line in lines]
    assert sum(int(found[1]) for found in evictions if found) > FLOOD * LONGEST_BLOCKS
    shares = [re.search(r"recency_kept_rate=([\d.]+)", line) for line in lines]
    kept = [float(found[1]) for found in shares if found]
    assert kept[0] == 0, "each was asked for again after more than the pool holds"
    assert max(kept) > 0, "two were asked for again at once"


def test_the_log_says_once_who_manages_the_cache(served: Served) -> None:
    assert len(served.lines("kvoxide: active for the KV cache")) == 1


def test_sigterm_ends_the_server(served: Served) -> None:
    assert (served.exit_code, served.left) == (0, [])
