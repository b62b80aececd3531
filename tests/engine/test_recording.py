"""What ``vllm serve`` recorded of an HTTP load hits in a replay what the server counted."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kvoxide.cli import main
from kvoxide.replay.reader import read_deployment, read_trace

from .models import FIRST_ORDINARY_TOKEN
from .server import Server, serving
from .test_http import Client, Service, ask_one_by_one, final_metrics
from .workload import random_tokens

CONVERSATIONS = 12
TURNS = 4
# A pool that not all of it fits.
POOL = {"num_gpu_blocks_override": 150}


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


def replayed(folder: Path, out: Path, *options: str) -> dict[str, Any]:
    command = ["replay", str(folder), "--quiet", "--json", str(out), *options]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(out.read_text())["results"][0]
    return result


def serve(
    mode: str, models: Path, tmp_path: Path, ask: Any, **options: Any
) -> tuple[Path, dict[str, float]]:
    folder = tmp_path / f"recorded-{mode}"
    options = {**POOL, "data_parallel_size": 1, **options}
    variables = {"KVOXIDE_RECORD": str(folder)}
    log = tmp_path / f"{mode}.log"
    with serving("llama", mode, models, log, options, variables) as server:
        server.wait_until_it_serves()
        num_requests = ask(server)
        metrics = final_metrics(server, num_requests)
        assert server.stop() == 0
    assert f"records the requests and steps of this server to {folder}" in log.read_text()
    assert len(read_trace(str(folder)).trace) == num_requests
    return folder, metrics


@pytest.mark.parametrize("mode", ["off", "require"])
def test_requests_one_by_one_hit_the_same(mode: str, models: Path, tmp_path: Path) -> None:
    def ask(server: Server) -> int:
        return len(ask_one_by_one(Client(server.url, Service("llama"))))

    folder, metrics = serve(mode, models, tmp_path, ask)
    deployment = read_deployment(str(folder))
    assert deployment is not None
    assert deployment.groups is not None
    assert (deployment.groups.text, deployment.num_blocks) == ("full:32", 150)
    result = replayed(folder, tmp_path / "out.json", "--concurrency", "1")
    assert result["prompt_tokens"] == counted(metrics, "prefix_cache_queries")
    hits = counted(metrics, "prefix_cache_hits")
    assert hits > 0
    assert result["hit_tokens"] == pytest.approx(hits, rel=0.01)


def test_conversations_side_by_side_hit_the_same(models: Path, tmp_path: Path) -> None:
    def ask(server: Server) -> int:
        return converse_at_once(Client(server.url, Service("llama")))

    folder, metrics = serve("auto", models, tmp_path, ask)
    options = ["--arrivals", "trace", "--fit", str(folder)]
    result = replayed(folder, tmp_path / "out.json", *options)
    assert result["prompt_tokens"] == counted(metrics, "prefix_cache_queries")
    hits = counted(metrics, "prefix_cache_hits")
    assert hits > 0
    assert result["hit_tokens"] == pytest.approx(hits, rel=0.01)
