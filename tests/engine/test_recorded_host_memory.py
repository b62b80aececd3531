"""Tests that a replay of a recorded engine with CPU memory hits, stores and loads as the engine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.testing.traces import replay_json
from tests.testing.vllm_releases import NEWEST

from .jobs import DENSE, OFFLOADED_JOBS, WITH_WINDOWS, Job
from .processes import running_job

CONNECTOR = "kv_transfer_config"
EXTRA = "kv_connector_extra_config"


def with_settings(job: Job, num_requests: int = 60, **settings: Any) -> Job:
    """Return the same engine with further settings of its CPU memory, and one workload."""
    config = job.options[CONNECTOR]
    config = config | {EXTRA: config[EXTRA] | settings}
    workload = replace(job.workloads[0], num_requests=num_requests, arrivals_per_step=3)
    return replace(job, options=job.options | {CONNECTOR: config}, workloads=(workload,))


def running_ahead(job: Job, **options: Any) -> Job:
    """Return the same engine with a scheduler that runs ahead of the model, and fewer arrivals."""
    workload = replace(job.workloads[0], arrivals_per_step=2)
    return replace(job, options=job.options | options, workloads=(workload,), async_scheduling=True)


LLAMA, STATES = OFFLOADED_JOBS["llama"], OFFLOADED_JOBS["qwen3-next"]
GEMMA = WITH_WINDOWS["gemma"]
FEW = 300 << 10
JOBS = {
    "llama": with_settings(LLAMA),
    "few chunks": with_settings(LLAMA, 100, cpu_bytes_to_use=FEW, eviction_policy="arc"),
    "answers": with_settings(LLAMA, cpu_bytes_to_use=2 * FEW, offload_prompt_only=False),
    "windows": with_settings(GEMMA, cpu_bytes_to_use=3 << 20),
    "threshold": with_settings(GEMMA, 100, cpu_bytes_to_use=1 << 20, store_threshold=2),
    "windows ahead": running_ahead(with_settings(GEMMA, 150, cpu_bytes_to_use=4 << 20)),
    "answers ahead": running_ahead(
        with_settings(GEMMA, 150, cpu_bytes_to_use=4 << 20, offload_prompt_only=False), **DENSE
    ),
    "states": replace(STATES, workloads=STATES.workloads[:1]),
}
# GPU and CPU memory decide together.
TOGETHER = {
    "llama together": with_settings(LLAMA, 80, cpu_bytes_to_use=1 << 20),
    "windows together": with_settings(GEMMA, 100, cpu_bytes_to_use=4 << 20),
    "windows together ahead": running_ahead(with_settings(GEMMA, 100, cpu_bytes_to_use=4 << 20)),
    "llama together ahead": running_ahead(with_settings(LLAMA, 80, cpu_bytes_to_use=1 << 20)),
    "states together": with_settings(
        replace(STATES, workloads=STATES.workloads[:1]), 30, cpu_bytes_to_use=4 << 20
    ),
}
ORDINARY = ("few chunks",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ORDINARY else pytest.mark.long)
        for name in JOBS | TOGETHER
    ],
)
def test_a_replay_has_the_counters_of_the_engine(name: str, models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    variables = {"KVOXIDE_RECORD": str(folder)}
    job, mode = (TOGETHER[name], "together") if name in TOGETHER else (JOBS[name], "off")
    with running_job(job, mode, NEWEST, models, tmp_path / "engine", variables) as running:
        counters = running.outcome().played[0].counters
    result = replay_json(tmp_path, folder)["results"][0]
    memory = result["host_memory"]
    replayed = {
        "prefix_cache_hits": result["hit_tokens"] - memory["loaded_tokens"],
        "external_prefix_cache_hits": memory["loaded_tokens"],
        "kv_offload_store_bytes": memory["stored_chunks"],
        "kv_offload_load_bytes": memory["loaded_chunks"],
    }
    assert replayed == {counter: counters[counter] for counter in replayed}
    assert all(replayed.values())
