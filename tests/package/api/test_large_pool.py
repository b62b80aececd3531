"""Tests of the costs of a pool with millions of blocks: memory for each block, and no work for the
garbage collector."""

import json
import subprocess
import sys

NUM_BLOCKS = 1_500_000
BYTES_PER_BLOCK = 71
"""640 MB for the 9.1 million blocks of a large accelerator. 16 bytes are two slots of the hash
table. With fewer, chunks take twice as long once the pool is full."""

FILL_A_POOL = f"""
import gc, json
from pathlib import Path
import numpy as np
from kvoxide import KVCacheConfig, KVCacheGroupSpec, KVCacheManager, Request

def resident():
    fields = Path("/proc/self/smaps_rollup").read_text().split()
    return int(fields[fields.index("Rss:") + 1]) * 1024

rng = np.random.default_rng(1)

def full_pool(num_blocks, size=16):
    config = KVCacheConfig(num_blocks, [KVCacheGroupSpec("full_attention", size)])
    manager = KVCacheManager(config, max_model_len=num_blocks * size)
    left = num_blocks - 1
    while left:
        n = min(left, 20_000)
        hashes = rng.integers(0, 256, size=(n, 32), dtype=np.uint8)
        request = Request(f"r{{left}}", block_hashes=hashes, num_prompt_tokens=n * size)
        assert manager.allocate_slots(request, n * size) is not None
        manager.free(request)
        left -= n
    return manager

full_pool(50_000)  # what the first pool of a process costs beside its blocks
gc.collect()
objects, before = len(gc.get_objects()), resident()
manager = full_pool({NUM_BLOCKS})
cached = manager.block_pool.get_num_cached_blocks()
print(json.dumps([cached, resident() - before, len(gc.get_objects()) - objects]))
"""


def test_a_pool_of_millions_is_small_and_invisible_to_the_garbage_collector() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL_A_POOL], capture_output=True, text=True, check=True
    )
    num_cached, num_bytes, num_objects = json.loads(done.stdout)
    assert num_cached == NUM_BLOCKS - 1
    assert num_bytes / NUM_BLOCKS < BYTES_PER_BLOCK
    assert num_objects < 1000
