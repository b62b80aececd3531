"""``python -m tests.proof.recorded.together``: records random servers whose GPU and CPU memory
decide together, and compares their counts with their replays' counts."""

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from kvoxide.vllm.environment import settings
from kvoxide.vllm.environment.releases import installed_version
from kvoxide.vllm.recording import hooks

from tests.proof.connector import traffic as traffic_module
from tests.proof.connector.scenario import Scenario
from tests.proof.connector.together import TogetherWorld, draw
from tests.proof.connector.traffic import Traffic
from tests.testing.traces import replay_json

from .server import recorded_scheduler

STEPS: Final = 250
COUNTED: Final = ("hits", "loaded tokens", "stored", "loaded", "never loaded")


def recordable(seed: int, resets: float | None = None) -> tuple[Scenario, settings.Settings]:
    """Draw a server. A recording does not hold which tokens a request may load, or drafts without
    tokens. ``resets`` is the chance that caches are reset before a step, by default a drawn one."""
    scenario = replace(draw(seed), eagle_group=None)
    if resets is not None:
        scenario = replace(scenario, resets=resets)
    retention = random.Random(seed).choice(settings.RETENTIONS)
    if retention == "adaptive":
        scenario = replace(scenario, interval=None)
    wanted = settings.Settings(
        mode="off", retention=retention, retention_interval=scenario.interval
    )
    return scenario, wanted


def serve(
    seed: int, folder: Path, num_steps: int = STEPS, resets: float | None = None
) -> Counter[str]:
    """Record a server to ``folder``. Return its counts."""
    scenario, wanted = recordable(seed, resets)
    with recorded_scheduler(), mock.patch.object(traffic_module, "PARAMS", (None,)):
        world, traffic = TogetherWorld(scenario, wanted), Traffic(scenario)
        scheduler = world.scheduler
        with mock.patch.dict(os.environ, {"KVOXIDE_RECORD": str(folder)}), settings.using(wanted):
            scheduler._kvoxide_recorder = recorder = hooks._start(scheduler)
        _count_hits(world)
        for _ in range(num_steps):
            for happens in traffic.draw(world):
                happens(world)
            world.counts.update(world.step().counts())
        world.finish()
        scheduler.make_stats()
        recorder.close()
    counts = world.counts
    transferred = world.connector.manager.tier.num_transferred_chunks
    counts.update(dict(zip(COUNTED[2:], transferred, strict=True)))
    return counts


def _count_hits(world: TogetherWorld) -> None:
    make_stats = world.scheduler.make_stats

    def counting(*arguments: Any, **named: Any) -> Any:
        stats = make_stats(*arguments, **named)
        if stats is not None:
            loaded = stats.connector_prefix_cache_stats
            world.counts["hits"] += stats.prefix_cache_stats.hits
            world.counts["loaded tokens"] += loaded.hits if loaded else 0
        return stats

    world.scheduler.make_stats = counting


def replayed(folder: Path, out: Path) -> dict[str, int]:
    """Return the counts of a replay. It writes a file to the folder ``out``."""
    result = replay_json(out, folder, "--quiet")["results"][0]
    memory = result["host_memory"]
    loaded = memory["loaded_tokens"]
    counts = (
        result["hit_tokens"] - loaded,
        loaded,
        memory["stored_chunks"],
        memory["loaded_chunks"],
        memory["never_loaded_chunks"],
    )
    return dict(zip(COUNTED, counts, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.recorded.together", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first server")
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each server")
    parser.add_argument("--resets", type=float, help="the chance of a reset before a step")
    given = parser.parse_args()
    num_different = 0
    print("| seed | server | its replay | layout | policy |\n|---|---|---|---|---|")
    for seed in range(given.seed, given.seed + given.servers):
        with tempfile.TemporaryDirectory() as name:
            counts = serve(seed, Path(name) / "recorded", given.steps, given.resets)
            found = replayed(Path(name) / "recorded", Path(name))
        counted = {name: counts[name] for name in COUNTED}
        num_different += counted != found
        scenario, wanted = recordable(seed)
        how = f"{wanted.policy}{', async' if scenario.is_async else ''}"
        rows = (json.dumps(list(each.values())) for each in (counted, found))
        print("|", " | ".join([str(seed), *rows, scenario.layout, how]), "|", flush=True)
    print(f"vLLM {installed_version()}: {given.servers} servers, {num_different} differ")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
