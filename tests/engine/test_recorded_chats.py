"""Tests that a replay predicts what a server did with chats at random times on two data-parallel
ranks."""

import json
import random
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.proof.recorded.playing import as_format_1
from tests.testing.traces import replay_json
from tests.testing.vllm_environments import OLDER_IF_LONG, ON_EACH_RELEASE

from .load import Chats, chat
from .models import MAX_POSITIONS, write_slow_llama
from .server import ONE_PROCESS, ONE_PROCESS_VARIABLES, Server, serving
from .test_http import by_rank, final_metrics
from .workload import random_tokens

CHATS = Chats(seed=1, num=120, per_second=3.0, message=300)
RANKS = {
    "data_parallel_size": 2,
    "max_model_len": MAX_POSITIONS,
    "max_num_batched_tokens": MAX_POSITIONS,
    "num_gpu_blocks_override": 400,
}
assert CHATS.longest < MAX_POSITIONS
RESETTING = {
    **ONE_PROCESS,
    "data_parallel_size": 1,
    "max_model_len": MAX_POSITIONS,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks_override": 200,
}


@pytest.mark.long
@pytest.mark.parametrize("release", ON_EACH_RELEASE)
@pytest.mark.parametrize("mode", ["off", "require"])
def test_chats_on_two_ranks_hit_and_wait_as_predicted(
    mode: str, release: str, models: Path, tmp_path: Path
) -> None:
    """Send hundreds of requests at random times. vLLM itself spreads them over its ranks."""
    if not (models / "slow-llama").exists():
        write_slow_llama(models / "slow-llama")
    folder, log = tmp_path / "recorded", tmp_path / "log"
    variables = {"KVOXIDE_RECORD": str(folder)}
    with serving("slow-llama", mode, release, models, log, RANKS, variables) as server:
        server.wait_until_it_serves()
        answers = chat(server.url, "slow-llama", CHATS)
        metrics = final_metrics(server, len(answers))
        waits = server.metrics("vllm:time_to_first_token_seconds")
        assert server.stop() == 0
    assert len(answers) > 200
    result = replay_json(tmp_path, folder, "--quiet")["results"][0]
    counted = by_rank(metrics, "hits")
    assert sum(counted) == sum(answer.num_cached_tokens for answer in answers) > 0
    instances = result["serving"]["instances"]
    assert [instance["hit_tokens"] for instance in instances] == counted
    timed = replay_json(tmp_path, folder, "--quiet", "--arrivals", "trace")["results"][0]
    assert timed["hit_tokens"] == pytest.approx(sum(counted), rel=0.01)
    predicted = timed["serving"]["time_to_first_token"]["p50"]
    measured = quantile_of_histogram(waits, 0.5)
    assert predicted == pytest.approx(measured, rel=0.5), (predicted, measured)


# tests/proof/recorded records servers with each manager.
@pytest.mark.parametrize("release", OLDER_IF_LONG)
@pytest.mark.parametrize("mode", [pytest.param("off", marks=pytest.mark.long), "require"])
def test_resets_and_prompt_logprobs_are_replayed_as_they_were(
    mode: str, release: str, models: Path, tmp_path: Path
) -> None:
    """Requests that ask for logprobs of their prompt do not read the cache."""
    folder, log = tmp_path / "recorded", tmp_path / "log"
    variables = {"KVOXIDE_RECORD": str(folder), **ONE_PROCESS_VARIABLES}
    rng = random.Random(7)
    prompts = [random_tokens(rng, 480) for _ in range(4)]
    with serving("llama", mode, release, models, log, RESETTING, variables, is_new=False) as server:
        server.wait_until_it_serves()
        for turn in range(12):
            if turn in (4, 9):
                server.reset_prefix_cache()
            # Several at once, so that a step has prefills and decodes.
            with ThreadPoolExecutor(4) as pool:
                asks = [(prompt, (turn + n) % 3 == 0) for n, prompt in enumerate(prompts)]
                list(pool.map(lambda ask: complete(server, *ask), asks))
        metrics = final_metrics(server, 12 * len(prompts))
        assert server.stop() == 0
    counted = sum(by_rank(metrics, "hits", num_ranks=1))
    assert counted > 0
    assert replay_json(tmp_path, folder, "--quiet")["results"][0]["hit_tokens"] == counted
    old = as_format_1(folder, tmp_path / "old")
    assert replay_json(tmp_path, old, "--quiet")["results"][0]["hit_tokens"] > counted


def complete(server: Server, prompt: list[int], wants_logprobs: bool) -> None:
    asked = {"model": "llama", "prompt": prompt, "max_tokens": 20, "ignore_eos": True}
    asked |= {"prompt_logprobs": 1} if wants_logprobs else {}
    server.read(
        urllib.request.Request(
            server.url + "/v1/completions",
            data=json.dumps(asked).encode(),
            headers={"Content-Type": "application/json"},
        )
    )


def quantile_of_histogram(samples: dict[str, float], share: float) -> float:
    """Return a quantile from the cumulative buckets of all ranks, as Prometheus does: linear inside
    a bucket."""
    counts: dict[float, float] = {}
    for name, value in samples.items():
        if found := re.search(r'_bucket\{.*le="([^"]+)"', name):
            counts[float(found[1])] = counts.get(float(found[1]), 0.0) + value
    lower = below = 0.0
    wanted = share * max(counts.values())
    for upper in sorted(counts):
        if counts[upper] >= wanted:
            return lower + (upper - lower) * (wanted - below) / (counts[upper] - below)
        lower, below = upper, counts[upper]
    raise AssertionError(samples)
