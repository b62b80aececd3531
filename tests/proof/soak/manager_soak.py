"""Sends requests through ``kvoxide.vllm.KVCacheManager``, with one manager after the other.

Python's cyclic collector runs only between managers, so that objects that need it are counted.
"""

import gc
import logging
import os
import weakref
from itertools import cycle, islice
from pathlib import Path
from random import Random

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["KVOXIDE"] = "require"

import kvoxide
import vllm
from kvoxide.lab.bench.clock import collector_paused

from .layouts import LAYOUTS, Layout
from .memory import Soak
from .prompts import LONGEST, Prompts
from .scheduler import MAX_RUNNING, MOST_OUTPUT, PREFILL_CHUNK, WANTED, Scheduler

REQUESTS_PER_MANAGER = 50_000
MAX_MODEL_LEN = LONGEST + MOST_OUTPUT

UNWANTED = (
    "blocks still in use when nothing runs",
    "managers never freed",
    "objects of requests that needed the collector",
)


def run(requests: int, every: int, seed: int, file: Path | None) -> int:
    """Serve ``requests``, report after each ``every``, and return the exit status."""
    soak = serve(requests, every, seed)
    return soak.finish(soak.failures(WANTED, UNWANTED), file)


def serve(requests: int, every: int, seed: int) -> Soak:
    """Return a report after each ``every`` requests, always between two managers."""
    soak = Soak("manager", seed, versions())
    print(soak.name, soak.versions)
    # A server logs a warning when a reset is refused.
    logging.getLogger("vllm.kvoxide").setLevel(logging.ERROR)
    rng = Random(seed)
    prompts = Prompts(rng)
    per_manager = min(every // len(LAYOUTS), REQUESTS_PER_MANAGER)
    layouts = cycle(LAYOUTS)
    with collector_paused():
        for start in range(0, requests, every):
            starts = range(start, start + every, per_manager)
            for first, layout in zip(starts, islice(layouts, len(starts)), strict=True):
                _play(layout, min(per_manager, start + every - first), first, prompts, rng, soak)
            soak.report(start + every)
    return soak


def versions() -> dict[str, str]:
    return {
        "vllm": vllm.__version__,
        "kvoxide": kvoxide.__version__,
        "hasher": LAYOUTS[0].make_hasher().__module__,
    }


def _play(
    layout: Layout, requests: int, first_number: int, prompts: Prompts, rng: Random, soak: Soak
) -> None:
    """Use a manager from its construction until it is gone."""
    counters = soak.counters
    manager = layout.make_manager(MAX_MODEL_LEN, MAX_RUNNING * PREFILL_CHUNK)
    scheduler = Scheduler(manager, layout.make_hasher(), prompts, rng, counters)
    scheduler.serve(requests, first_number)
    manager.engine.check_invariants()
    in_use = layout.num_blocks - 1 - manager.block_pool.get_num_free_blocks()
    counters["blocks still in use when nothing runs"] += in_use
    counters["objects of requests that needed the collector"] += gc.collect()
    gone = weakref.ref(manager)
    del scheduler, manager
    if gone() is None:
        counters["managers freed at once"] += 1
        return
    counters["objects of managers that needed the collector"] += gc.collect()
    counters["managers freed by the collector" if gone() is None else "managers never freed"] += 1
