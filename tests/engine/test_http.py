"""``vllm serve`` answers, counts and publishes the same with kvoxide as without, and stops."""

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from .jobs import BLOCK_SIZE, QWEN, STATE_BLOCK_SIZE, STATE_SCALE
from .models import FIRST_ORDINARY_TOKEN
from .outcome import first_difference
from .replaying import replayed
from .server import ONE_PROCESS_PER_ENGINE, REQUEST_TIMEOUT, Server, serving
from .workload import Workload, plan, random_tokens

MODES = ("off", "require")
ONE_BY_ONE = Workload(seed=3, num_requests=30, num_aborts=0)
AT_ONCE = 16
SHARED_BLOCKS = 5
CLEARED = {"type": "AllBlocksCleared"}
METRICS_TIMEOUT = 10
# Steps of a replay that are over when the next request comes, as those of the server were.
AT_ONCE_DONE = ("--step-time", "base=1us,prefill=0us,context=0us,running=0us")


@dataclass(frozen=True)
class Service:
    """What is served, by ``num_ranks`` engines each, and what is asked."""

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    num_ranks: int = 1
    one_by_one: Workload = ONE_BY_ONE
    block_size: int = BLOCK_SIZE


TWO_RANKS = Service("llama", {"api_server_count": 1}, num_ranks=2)
GEMMA = Service("gemma")
QWEN3_NEXT = Service(
    "qwen3-next",
    QWEN,
    one_by_one=replace(ONE_BY_ONE, scale=STATE_SCALE),
    block_size=STATE_BLOCK_SIZE,
)


@dataclass
class Served:
    """What a server did: answers in the order of the questions, and the events of each rank.

    ``left`` are the processes that were still there after it had ended.
    """

    one_by_one: list[Any]
    at_once: list[Any]
    metrics: dict[str, float]
    events: list[list[Any]]
    exit_code: int
    left: list[int]
    log: str
    recording: Path


@dataclass
class Client:
    """Asks for completions of token ids."""

    url: str
    service: Service

    def __post_init__(self) -> None:
        openai = import_module("openai")
        self.openai = openai.OpenAI(
            base_url=f"{self.url}/v1", api_key="none", timeout=REQUEST_TIMEOUT, max_retries=0
        )

    def ask(
        self, number: int, prompt: list[int], max_tokens: int, **vllms_own: Any
    ) -> dict[str, Any]:
        """Every second answer is streamed, and the ranks take turns. What is vLLM's own of a
        request goes into its body beside the rest."""
        stream = number % 2 == 1
        answer = self.openai.completions.create(
            model=self.service.model,
            prompt=prompt,
            max_tokens=max_tokens,
            temperature=0,
            stream=stream,
            stream_options={"include_usage": True} if stream else None,
            extra_body={"ignore_eos": True, "return_token_ids": True, **vllms_own},
            extra_headers={"X-data-parallel-rank": str(number // 2 % self.service.num_ranks)},
        )
        return whole(answer if stream else [answer])


def whole(parts: Sequence[Any]) -> dict[str, Any]:
    """One answer from its parts, the last of which tells the usage."""
    parts = list(parts)
    choices = [choice for part in parts for choice in part.choices]
    return {
        "text": "".join(choice.text for choice in choices),
        "tokens": [token for choice in choices for token in choice.token_ids],
        "cached": parts[-1].usage.prompt_tokens_details.cached_tokens,
    }


def converse(server: Server, client: Client, recording: Path) -> Served:
    server.wait_until_it_serves()
    one_by_one = ask_one_by_one(client)
    server.reset_prefix_cache()
    at_once = ask_at_once(client)
    return Served(
        one_by_one=one_by_one,
        at_once=at_once,
        metrics=final_metrics(server, len(one_by_one) + len(at_once)),
        exit_code=server.stop(),
        left=server.running.members(),
        events=server.heard(),
        log=server.running.log.read_text(),
        recording=recording,
    )


def ask_one_by_one(client: Client) -> list[Any]:
    conversations: dict[str, list[int]] = {}
    answers = []
    for number, request in enumerate(plan(client.service.one_by_one)):
        before = conversations[request.follows] if request.follows else []
        answer = client.ask(number, before + request.tokens, request.max_tokens)
        conversations[request.name] = before + request.tokens + answer["tokens"]
        answers.append(answer)
    return answers


def ask_at_once(client: Client) -> list[Any]:
    """Requests whose prefix is cached, and that share no more than that: order does not matter."""
    rng = random.Random(4)
    service = client.service
    prefix = random_tokens(rng, SHARED_BLOCKS * service.block_size)
    longer = [*prefix, FIRST_ORDINARY_TOKEN]
    first = [client.ask(2 * rank, longer, max_tokens=1) for rank in range(service.num_ranks)]
    prompts = [prefix + random_tokens(rng, service.block_size) for _ in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return first + list(pool.map(client.ask, range(AT_ONCE), prompts, [10] * AT_ONCE))


def final_metrics(server: Server, num_requests: int) -> dict[str, float]:
    """The prefix-cache counters once all requests are counted, which may be after the answer."""
    deadline = time.monotonic() + METRICS_TIMEOUT
    while sum(server.metrics("vllm:request_success_total").values()) < num_requests:
        assert time.monotonic() < deadline, server.get("/metrics")
        time.sleep(0.1)
    return server.metrics("vllm:prefix_cache")


def serve_in_both_modes(service: Service, models: Path, folder: Path) -> tuple[Served, Served]:
    """kvoxide's server is as its users start it; vLLM's own does with fewer new processes."""
    options = service.options | {"data_parallel_size": service.num_ranks}
    recordings = [folder / f"recorded-{mode}" for mode in MODES]
    fewer: dict[str, dict[str, str]] = {"off": ONE_PROCESS_PER_ENGINE, "require": {}}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                serving(
                    service.model,
                    mode,
                    models,
                    folder / f"{mode}.log",
                    options,
                    {"KVOXIDE_RECORD": str(recording), **fewer[mode]},
                    is_new=mode == "require",
                )
            )
            for mode, recording in zip(MODES, recordings, strict=True)
        ]
        off, require = [
            converse(each, Client(each.url, service), recording)
            for each, recording in zip(servers, recordings, strict=True)
        ]
        return off, require


@pytest.fixture(scope="module")
def served(models: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, Served]:
    return serve_in_both_modes(TWO_RANKS, models, tmp_path_factory.mktemp("servers"))


def test_answers_and_cached_tokens_are_the_same(served: tuple[Served, Served]) -> None:
    assert_answers_are_the_same(*served, TWO_RANKS)


def test_metrics_count_the_same(served: tuple[Served, Served]) -> None:
    off, require = served
    hits = sum(value for name, value in off.metrics.items() if "hits_total" in name)
    assert hits == sum(answer["cached"] for answer in off.one_by_one + off.at_once)
    assert counts(off) == counts(require)


def test_subscribers_hear_the_same_events(served: tuple[Served, Served]) -> None:
    assert_events_are_the_same(*served)


def test_sigterm_ends_the_server(served: tuple[Served, Served]) -> None:
    for each in served:
        assert (each.exit_code, each.left) == (0, [])


def test_the_log_says_who_manages_the_cache(served: tuple[Served, Served]) -> None:
    off, require = served
    assert [each.log.count("manages the KV cache") for each in (off, require)] == [0, 2]


@pytest.mark.parametrize("which", range(len(MODES)), ids=MODES)
def test_a_replay_hits_on_each_rank_what_it_counted(
    which: int, served: tuple[Served, Served], tmp_path: Path
) -> None:
    recorded = served[which]
    result = replayed(
        recorded.recording, tmp_path / "replay.json", "--arrivals", "trace", *AT_ONCE_DONE
    )
    counted = [hits_of_rank(recorded.metrics, rank) for rank in range(2)]
    assert min(counted) > 0
    instances = result["serving"]["instances"]
    assert [instance["hit_tokens"] for instance in instances] == counted
    assert result["hit_tokens"] == sum(counted)


@pytest.mark.long
@pytest.mark.parametrize("service", [GEMMA, QWEN3_NEXT], ids=lambda service: service.model)
def test_windows_and_states(service: Service, models: Path, tmp_path: Path) -> None:
    served = off, require = serve_in_both_modes(service, models, tmp_path)
    assert_answers_are_the_same(*served, service)
    assert_events_are_the_same(*served)
    assert counts(off) == counts(require)
    assert [off.exit_code, require.exit_code, off.left, require.left] == [0, 0, [], []]


def assert_answers_are_the_same(off: Served, require: Served, service: Service) -> None:
    assert first_difference(off.one_by_one, require.one_by_one) is None
    assert first_difference(off.at_once, require.at_once) is None
    assert any(answer["cached"] for answer in off.one_by_one)
    shared = SHARED_BLOCKS * service.block_size
    assert {answer["cached"] for answer in off.at_once[service.num_ranks :]} == {shared}


def assert_events_are_the_same(off: Served, require: Served) -> None:
    for events in off.events:
        assert CLEARED in events
        assert any("BlockStored" in str(event) for event in events)
    assert first_difference(heard_in_order(off), heard_in_order(require)) is None
    assert first_difference(heard_at_once(off), heard_at_once(require)) is None


def hits_of_rank(metrics: dict[str, float], rank: int) -> int:
    """Prompt tokens that a data-parallel rank counted as hit."""
    start = f'vllm:prefix_cache_hits_total{{engine="{rank}"'
    (value,) = (value for name, value in metrics.items() if name.startswith(start))
    return int(value)


def counts(served: Served) -> dict[str, float]:
    """The counters, without the times at which they were made."""
    return {name: value for name, value in served.metrics.items() if "_created" not in name}


def heard_in_order(served: Served) -> list[list[Any]]:
    """Each rank's events while it had one request at a time."""
    return [events[: reset_at(events)] for events in served.events]


def heard_at_once(served: Served) -> list[list[str]]:
    """Each rank's events while it had many requests, whose order is up to chance."""
    return [sorted(map(repr, events[reset_at(events) :])) for events in served.events]


def reset_at(events: list[Any]) -> int:
    return len(events) - events[::-1].index(CLEARED)
