"""Chats at random times, on two data-parallel ranks: a replay predicts what their server did."""

import re
from pathlib import Path

import pytest

from tests.testing.traces import replay_json

from .load import Chats, chat
from .models import MAX_POSITIONS, write_slow_llama
from .server import serving
from .test_http import by_rank, final_metrics

CHATS = Chats(seed=1, num=120, per_second=3.0, message=300)
RANKS = {
    "data_parallel_size": 2,
    "max_model_len": MAX_POSITIONS,
    "max_num_batched_tokens": MAX_POSITIONS,
    "num_gpu_blocks_override": 400,
}
assert CHATS.longest < MAX_POSITIONS


@pytest.mark.long
@pytest.mark.parametrize("mode", ["off", "require"])
def test_chats_on_two_ranks_hit_and_wait_as_predicted(
    mode: str, models: Path, tmp_path: Path
) -> None:
    """Hundreds of requests that vLLM itself spreads over its ranks, at random times."""
    if not (models / "slow-llama").exists():
        write_slow_llama(models / "slow-llama")
    folder, log = tmp_path / "recorded", tmp_path / "log"
    variables = {"KVOXIDE_RECORD": str(folder)}
    with serving("slow-llama", mode, models, log, RANKS, variables) as server:
        server.wait_until_it_serves()
        answers = chat(server.url, "slow-llama", CHATS)
        metrics = final_metrics(server, len(answers))
        waits = server.metrics("vllm:time_to_first_token_seconds")
        assert server.stop() == 0
    assert len(answers) > 200
    result = replay_json(tmp_path, folder, "--quiet")["results"][0]
    counted = by_rank(metrics, "hits")
    assert sum(counted) == sum(answer.num_cached_tokens for answer in answers) > 0
    assert result["hit_tokens"] == pytest.approx(sum(counted), rel=0.01)
    instances = result["serving"]["instances"]
    for instance, hits in zip(instances, counted, strict=True):
        assert instance["hit_tokens"] == pytest.approx(hits, rel=0.01)
    predicted = result["serving"]["time_to_first_token"]["p50"]
    measured = quantile_of_histogram(waits, 0.5)
    assert predicted == pytest.approx(measured, rel=0.5), (predicted, measured)


def quantile_of_histogram(samples: dict[str, float], share: float) -> float:
    """From the cumulative buckets of all ranks, as Prometheus does: linear inside a bucket."""
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
