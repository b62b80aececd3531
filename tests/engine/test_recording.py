"""What ``vllm serve`` with one rank recorded of an HTTP load hits in a replay what the server
counted, and it answered and counted the same with kvoxide as without."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kvoxide.replay.reader import read_deployment, read_trace

from .models import FIRST_ORDINARY_TOKEN
from .outcome import first_difference
from .replaying import replayed
from .server import ONE_PROCESS_PER_ENGINE, serving
from .test_http import MODES, Client, Service, ask_one_by_one, final_metrics
from .workload import random_tokens

CONVERSATIONS = 12
TURNS = 4
# A pool that not all of it fits.
POOL = {"num_gpu_blocks_override": 150}
# Without it vLLM kills the engine as soon as it has told it to stop.
TIME_TO_STOP = {"shutdown_timeout": 30}


def counted(metrics: dict[str, float], name: str) -> int:
    (value,) = (value for key, value in metrics.items() if key.startswith(f"vllm:{name}_total"))
    return int(value)


def converse_at_once(client: Client) -> int:
    """Conversations side by side, whose turns follow each other; how many requests they are."""

    def converse(number: int) -> None:
        rng = random.Random(number)
        said = [FIRST_ORDINARY_TOKEN] * 64 + random_tokens(rng, 40)
        for turn in range(TURNS):
            answer = client.ask(2 * (number + turn), said, max_tokens=20)
            said += answer["tokens"] + random_tokens(rng, 10)

    with ThreadPoolExecutor(CONVERSATIONS) as pool:
        list(pool.map(converse, range(CONVERSATIONS)))
    return CONVERSATIONS * TURNS


@dataclass
class Recorded:
    """What a server recorded, what it answered to its first requests, and what it had counted after
    them and at its end."""

    folder: Path
    answers: list[Any]
    first: dict[str, float]
    all: dict[str, float]


def serve(mode: str, models: Path, tmp_path: Path) -> Recorded:
    """Requests one by one, and then conversations side by side."""
    folder, log = tmp_path / "recorded", tmp_path / "log"
    options = {**POOL, **TIME_TO_STOP, "data_parallel_size": 1}
    variables = {"KVOXIDE_RECORD": str(folder), **ONE_PROCESS_PER_ENGINE}
    with serving("llama", mode, models, log, options, variables, is_new=False) as server:
        server.wait_until_it_serves()
        client = Client(server.url, Service("llama"))
        answers = ask_one_by_one(client)
        first = final_metrics(server, len(answers))
        num_requests = len(answers) + converse_at_once(client)
        metrics = final_metrics(server, num_requests)
        assert server.stop() == 0
    assert f"records the requests and steps of this server to {folder}" in log.read_text()
    assert len(read_trace(str(folder)).trace) == num_requests
    return Recorded(folder, answers, first, metrics)


@pytest.fixture(scope="module")
def by_mode(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    return {mode: serve(mode, models, tmp_path_factory.mktemp(mode)) for mode in MODES}


def test_first_answers_and_counts_are_the_same(by_mode: dict[str, Recorded]) -> None:
    off, require = (by_mode[mode] for mode in MODES)
    assert first_difference(off.answers, require.answers) is None
    for name in ("prefix_cache_queries", "prefix_cache_hits"):
        assert counted(off.first, name) == counted(require.first, name) > 0


@pytest.mark.parametrize("mode", MODES)
def test_what_was_recorded_hits_the_same(
    mode: str, by_mode: dict[str, Recorded], tmp_path: Path
) -> None:
    recorded = by_mode[mode]
    deployment = read_deployment(str(recorded.folder))
    assert deployment is not None
    assert deployment.groups is not None
    assert (deployment.groups.text, deployment.num_blocks) == ("full:32", 150)
    one_by_one = ["--requests", str(len(recorded.answers)), "--concurrency", "1"]
    one_by_one += ["--arrivals", "full"]
    at_their_times: list[str] = []
    for options, metrics in ((one_by_one, recorded.first), (at_their_times, recorded.all)):
        result = replayed(recorded.folder, tmp_path / "out.json", *options)
        assert result["prompt_tokens"] == counted(metrics, "prefix_cache_queries")
        hits = counted(metrics, "prefix_cache_hits")
        assert hits > 0
        assert result["hit_tokens"] == pytest.approx(hits, rel=0.01)
    first_hits = counted(recorded.first, "prefix_cache_hits")
    assert counted(recorded.all, "prefix_cache_hits") > 2 * first_hits
