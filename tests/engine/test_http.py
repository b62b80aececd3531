"""Tests that ``vllm serve`` answers, counts and publishes the same with kvoxide as without, that it
records what it served, and that it stops."""

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
from kvoxide.lab.replay.input import read_deployment, read_trace

from tests.testing.traces import replay_json
from tests.testing.vllm_environments import OLDER_IF_LONG, ON_EACH_RELEASE

from .jobs import BLOCK_SIZE, QWEN, STATE_BLOCK_SIZE, STATE_SCALE
from .models import FIRST_ORDINARY_TOKEN
from .outcome import first_difference
from .server import ONE_PROCESS, ONE_PROCESS_VARIABLES, REQUEST_TIMEOUT, Server, serving
from .workload import Workload, plan, random_tokens

MODES = ("off", "require")
ONE_BY_ONE = Workload(seed=3, num_requests=30, num_aborts=0)
AT_ONCE = 16
SHARED_BLOCKS = 5
CONVERSATIONS = 24
CONVERSATIONS_AT_ONCE = 8
TURNS = 4
CLEARED = {"type": "AllBlocksCleared"}
METRICS_TIMEOUT = 10
# Without this, vLLM kills the engine as soon as it has asked it to stop.
TIME_TO_STOP = {"shutdown_timeout": 30}
# A pool that does not fit all of the conversations.
NUM_BLOCKS = 70
# Replayed steps end before the next request comes, as the server's steps did.
AT_ONCE_DONE = ("--step-time", "base=1us,prefill=0us,context=0us,running=0us")


@dataclass(frozen=True)
class Service:
    """The served model, with ``num_ranks`` engines, and the requests."""

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    num_ranks: int = 1
    one_by_one: Workload = ONE_BY_ONE
    block_size: int = BLOCK_SIZE


TWO_RANKS = Service(
    "llama", {"api_server_count": 1, "num_gpu_blocks_override": NUM_BLOCKS}, num_ranks=2
)
GEMMA = Service("gemma", {"api_server_count": 1}, num_ranks=2)
QWEN3_NEXT = Service(
    "qwen3-next",
    QWEN,
    one_by_one=replace(ONE_BY_ONE, scale=STATE_SCALE),
    block_size=STATE_BLOCK_SIZE,
)


@dataclass
class Served:
    """The behaviour of a server: the answers in the order of the questions, the prefix-cache
    counters after them and after the later conversations, kvoxide's own metrics, and the events of
    each rank.

    ``left`` are the processes that still existed after it had ended.
    """

    one_by_one: list[Any]
    at_once: list[Any]
    metrics: dict[str, float]
    all_metrics: dict[str, float]
    own_metrics: dict[str, float]
    events: list[list[Any]]
    exit_code: int
    left: list[int]
    log: str
    recording: Path

    @property
    def num_first(self) -> int:
        """The number of requests before the conversations."""
        return len(self.one_by_one) + len(self.at_once)


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
        """Ask for a completion. Every second answer is streamed, and the ranks take turns.
        ``vllms_own`` are vLLM's own fields for the body of the request."""
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
    """Return one answer from its parts. The last part has the usage."""
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
    num_first = len(one_by_one) + len(at_once)
    metrics = final_metrics(server, num_first)
    server.reset_prefix_cache()
    converse_at_once(client)
    return Served(
        one_by_one=one_by_one,
        at_once=at_once,
        metrics=metrics,
        all_metrics=final_metrics(server, num_first + CONVERSATIONS * TURNS),
        own_metrics=server.metrics("kvoxide_"),
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
    """Ask requests at the same time whose prefix is cached and that share nothing else, so that
    their order does not matter."""
    rng = random.Random(4)
    service = client.service
    prefix = random_tokens(rng, SHARED_BLOCKS * service.block_size)
    longer = [*prefix, FIRST_ORDINARY_TOKEN]
    first = [client.ask(2 * rank, longer, max_tokens=1) for rank in range(service.num_ranks)]
    prompts = [prefix + random_tokens(rng, service.block_size) for _ in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return first + list(pool.map(client.ask, range(AT_ONCE), prompts, [10] * AT_ONCE))


def converse_at_once(client: Client) -> None:
    """Have conversations at the same time. One begins when another ends."""

    def converse(number: int) -> None:
        rng = random.Random(number)
        said = [FIRST_ORDINARY_TOKEN] * 64 + random_tokens(rng, 40)
        for turn in range(TURNS):
            answer = client.ask(2 * (number + turn), said, max_tokens=20)
            said += answer["tokens"] + random_tokens(rng, 10)

    with ThreadPoolExecutor(CONVERSATIONS_AT_ONCE) as pool:
        list(pool.map(converse, range(CONVERSATIONS)))


def final_metrics(server: Server, num_requests: int) -> dict[str, float]:
    """Return the prefix-cache counters once all requests are counted, which may be after the
    answer."""
    deadline = time.monotonic() + METRICS_TIMEOUT
    while sum(server.metrics("vllm:request_success_total").values()) < num_requests:
        assert time.monotonic() < deadline, server.get("/metrics")
        time.sleep(0.1)
    return server.metrics("vllm:prefix_cache")


def serve_in_both_modes(
    service: Service, release: str, models: Path, folder: Path
) -> tuple[Served, Served]:
    options = {
        **service.options,
        **ONE_PROCESS,
        **TIME_TO_STOP,
        "data_parallel_size": service.num_ranks,
    }
    recordings = [folder / f"recorded-{mode}" for mode in MODES]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                serving(
                    service.model,
                    mode,
                    release,
                    models,
                    folder / f"{mode}.log",
                    options,
                    {"KVOXIDE_RECORD": str(recording), **ONE_PROCESS_VARIABLES},
                    is_new=False,
                )
            )
            for mode, recording in zip(MODES, recordings, strict=True)
        ]
        off, require = [
            converse(each, Client(each.url, service), recording)
            for each, recording in zip(servers, recordings, strict=True)
        ]
        return off, require


@pytest.fixture(scope="module", params=OLDER_IF_LONG)
def served(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Served, Served]:
    folder = tmp_path_factory.mktemp("servers")
    return serve_in_both_modes(TWO_RANKS, request.param, models, folder)


def test_answers_and_cached_tokens_are_the_same(served: tuple[Served, Served]) -> None:
    assert_answers_are_the_same(*served, TWO_RANKS)


def test_metrics_count_the_same(served: tuple[Served, Served]) -> None:
    off, require = served
    hits = sum(value for name, value in off.metrics.items() if "hits_total" in name)
    assert hits == sum(answer["cached"] for answer in off.one_by_one + off.at_once)
    assert counts(off) == counts(require)


def test_metrics_say_who_manages_the_cache_of_each_rank(served: tuple[Served, Served]) -> None:
    for mode, each in zip(MODES, served, strict=True):
        info = [name for name in each.own_metrics if name.startswith("kvoxide_info{")]
        assert len(info) == TWO_RANKS.num_ranks
        for rank in range(TWO_RANKS.num_ranks):
            labels = f'engine="{rank}",model_name="{TWO_RANKS.model}"'
            active = each.own_metrics[f'kvoxide_active{{{labels},part="manager"}}']
            assert active == (mode != "off")
            assert any(f'engine="{rank}"' in name and f'mode="{mode}"' in name for name in info)


def test_subscribers_hear_the_same_events(served: tuple[Served, Served]) -> None:
    assert_events_are_the_same(*served)


def test_sigterm_ends_the_server(served: tuple[Served, Served]) -> None:
    for each in served:
        assert (each.exit_code, each.left) == (0, [])


def test_the_log_says_who_manages_the_cache(served: tuple[Served, Served]) -> None:
    off, require = served
    assert [each.log.count("kvoxide: active for the KV cache") for each in (off, require)] == [0, 2]


each_recording = pytest.mark.parametrize("which", range(len(MODES)), ids=MODES)


@each_recording
def test_it_says_what_it_records_and_where(which: int, served: tuple[Served, Served]) -> None:
    recorded = served[which]
    folder = recorded.recording
    said = f"kvoxide: recording requests and steps to {folder}."
    assert recorded.log.count(said) == TWO_RANKS.num_ranks
    assert len(read_trace(str(folder)).trace) == recorded.num_first + CONVERSATIONS * TURNS
    deployment = read_deployment(str(folder))
    assert deployment is not None
    assert deployment.groups is not None
    assert (deployment.groups.text, deployment.num_blocks) == ("full:32", NUM_BLOCKS)


@each_recording
def test_a_replay_hits_on_each_rank_what_it_counted(
    which: int, served: tuple[Served, Served], tmp_path: Path
) -> None:
    assert_replay_hits_as_counted(served[which], tmp_path, TWO_RANKS)


@each_recording
def test_requests_one_by_one_hit_in_a_replay_what_clients_were_told(
    which: int, served: tuple[Served, Served], tmp_path: Path
) -> None:
    answers = served[which].one_by_one
    one_by_one = ("--requests", str(len(answers)), "--concurrency", "1", "--arrivals", "full")
    result = replayed(served[which], tmp_path, *one_by_one)
    assert result["hit_tokens"] == sum(answer["cached"] for answer in answers) > 0


@each_recording
def test_conversations_at_once_hit_in_a_replay_what_the_server_counted(
    which: int, served: tuple[Served, Served], tmp_path: Path
) -> None:
    recorded = served[which]
    for events in recorded.events:
        assert "BlockRemoved" in str(between_resets(events)[-1])
    result = replayed(recorded, tmp_path)
    assert result["prompt_tokens"] == sum(by_rank(recorded.all_metrics, "queries"))
    hits = by_rank(recorded.all_metrics, "hits")
    assert result["hit_tokens"] == pytest.approx(sum(hits), rel=0.01)
    for first, in_all in zip(by_rank(recorded.metrics, "hits"), hits, strict=True):
        assert in_all > 2 * first


def replayed(recorded: Served, tmp_path: Path, *options: str) -> dict[str, Any]:
    return dict(replay_json(tmp_path, recorded.recording, "--quiet", *options)["results"][0])


@pytest.mark.long
@pytest.mark.parametrize("release", ON_EACH_RELEASE)
@pytest.mark.parametrize("service", [GEMMA, QWEN3_NEXT], ids=lambda service: service.model)
def test_windows_and_states(service: Service, release: str, models: Path, tmp_path: Path) -> None:
    served = off, require = serve_in_both_modes(service, release, models, tmp_path)
    assert_answers_are_the_same(*served, service)
    assert_events_are_the_same(*served)
    assert counts(off) == counts(require)
    for each in served:
        assert_replay_hits_as_counted(each, tmp_path, service)
    assert [off.exit_code, require.exit_code, off.left, require.left] == [0, 0, [], []]


def assert_replay_hits_as_counted(recorded: Served, folder: Path, service: Service) -> None:
    first = ("--requests", str(recorded.num_first), "--arrivals", "trace", *AT_ONCE_DONE)
    result = replayed(recorded, folder, *first)
    counted = by_rank(recorded.metrics, "hits", service.num_ranks)
    assert min(counted) > 0
    instances = result["serving"]["instances"]
    assert [instance["hit_tokens"] for instance in instances] == counted
    assert result["hit_tokens"] == sum(counted)
    queries = by_rank(recorded.metrics, "queries", service.num_ranks)
    assert result["prompt_tokens"] == sum(queries)


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


def by_rank(metrics: dict[str, float], unit: str, num_ranks: int = 2) -> list[int]:
    """Return the prompt tokens that each data-parallel rank counted as ``queries`` or as
    ``hits``."""
    start = f"vllm:prefix_cache_{unit}_total"
    return [
        int(value)
        for rank in range(num_ranks)
        for name, value in metrics.items()
        if name.startswith(f'{start}{{engine="{rank}"')
    ]


def counts(served: Served) -> dict[str, float]:
    """Return the counters, without the times at which they were created."""
    return {name: value for name, value in served.metrics.items() if "_created" not in name}


def heard_in_order(served: Served) -> list[list[Any]]:
    """Return each rank's events while it had one request at a time."""
    return [one_by_one for one_by_one, _, _ in map(between_resets, served.events)]


def heard_at_once(served: Served) -> list[list[str]]:
    """Return each rank's events while it had many requests, whose order is random."""
    return [sorted(map(repr, at_once)) for _, at_once, _ in map(between_resets, served.events)]


def between_resets(events: list[Any]) -> list[list[Any]]:
    """Return the events up to each reset, which is included, and the events after the last one."""
    parts: list[list[Any]] = [[]]
    for event in events:
        parts[-1].append(event)
        if event == CLEARED:
            parts.append([])
    return parts
