"""Give the manager numpy arrays, and get the arrays that an attention kernel reads.

Prompts, ready-made block hashes and block tables are arrays, so no Python object is created for
each token or block.

Run it::

    pip install .
    python examples/arrays.py

It prints::

    first: 0 of 100 tokens from the cache
    second: 96 of 100 tokens from the cache
    full attention: int32 [ 1  2  3  4  5  6 15]
    sliding window: int32 [ 0  0 10 11 12 13 16]
    slots of the last block: [240 241 242 243]
    block tables: (2, 7) equal in 6 blocks
    next free blocks: [17 18 19 20]
"""

import numpy as np
from kvoxide import BlockHasher, KVCacheConfig, KVCacheGroupSpec, KVCacheManager, Request

BLOCK_SIZE = 16

groups = [
    KVCacheGroupSpec("full_attention", BLOCK_SIZE),
    KVCacheGroupSpec("sliding_window", BLOCK_SIZE, sliding_window=64),
]
manager = KVCacheManager(KVCacheConfig(num_blocks=1000, kv_cache_groups=groups), max_model_len=4096)
hasher = BlockHasher(manager.hash_block_size)

# In: a prompt as an array of tokens.
prompt = np.arange(100, dtype=np.int32)
first = Request("first", prompt, block_hasher=hasher)

# In: the same prompt as an array of hashes, a row of bytes per block, as a router may have it.
rows = np.frombuffer(b"".join(hasher.hash_tokens(prompt)), dtype=np.uint8).reshape(-1, 32)
second = Request("second", block_hashes=rows, num_prompt_tokens=len(prompt))

for request in (first, second):
    cached, num_hit, request.shared_prefix_boundary = manager.get_computed_blocks(request)
    manager.allocate_slots(request, request.num_tokens - num_hit, num_hit, cached)
    request.num_computed_tokens = request.num_tokens
    print(f"{request.request_id}: {num_hit} of {request.num_tokens} tokens from the cache")

# Out: an array of block ids for each group. 0 is the null block: its tokens left the window.
full, window = manager.get_blocks("second").get_block_ids_numpy()
print("full attention:", full.dtype, full)
print("sliding window:", window.dtype, window)

# The slot of each token in the KV cache, and the block tables of a batch, padded to one length.
positions = np.arange(len(prompt))
slots = full[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
tables = [manager.get_blocks(it.request_id).get_block_ids_numpy()[0] for it in (first, second)]
batch = np.zeros((len(tables), max(map(len, tables))), dtype=np.int32)
for row, table in zip(batch, tables, strict=True):
    row[: len(table)] = table
print("slots of the last block:", slots[-4:])
print("block tables:", batch.shape, "equal in", int((batch[0] == batch[1]).sum()), "blocks")

# Out: the free queue, in the order in which blocks are allocated.
print("next free blocks:", manager.block_pool.get_free_block_ids()[:4])
