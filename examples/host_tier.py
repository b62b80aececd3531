"""Keep KV blocks in CPU memory with ``HostTier`` alone: store, look up, load, evict.

The tier decides which blocks are kept, and where. The caller copies the bytes. Here numpy arrays
are the memory of the GPU and of the CPU.

Run it::

    pip install .
    python examples/host_tier.py

It prints::

    stored 5 blocks in chunks [0, 1, 2, 3, 4], evicted 0
    stored 2 blocks in chunks [5, 6], evicted 0
    stored 2 blocks in chunks [7, 4], evicted 1
    chat 0: 64 of 88 tokens loaded
    chat 1: 80 of 88 tokens loaded
    chat 2: 80 of 88 tokens loaded
    chat 3: 48 of 88 tokens loaded
    the blocks are the same: True
    0 of 8 chunks are free
"""

import numpy as np
from kvoxide import BlockHasher, HostRequest, HostTier
from numpy.typing import NDArray

BLOCK_SIZE = 16
BLOCK_BYTES = 64
Prompt = NDArray[np.int32]

GROUP = (0).to_bytes(4, "big")

gpu = np.zeros((100, BLOCK_BYTES), dtype=np.uint8)
cpu = np.zeros((8, BLOCK_BYTES), dtype=np.uint8)
tier = HostTier(num_chunks=len(cpu), policy="lru")
hasher = BlockHasher(BLOCK_SIZE)


def keys_of(prompt: Prompt) -> list[bytes]:
    """Return the key of each full block: its hash and its group."""
    return [block_hash + GROUP for block_hash in hasher.hash_tokens(prompt)]


def store(prompt: Prompt, blocks: list[int]) -> None:
    """Copy a prompt's blocks to the CPU. Blocks that are there already are not copied again."""
    request, keys = HostRequest(), keys_of(prompt)
    block_of = dict(zip(keys, blocks, strict=True))
    plan = tier.prepare_store(request, keys)
    if plan is None:
        print("no room: every chunk is in use")
        return
    cpu[plan.chunk_ids] = gpu[[block_of[key] for key in plan.keys]]
    tier.complete_store(plan.keys)
    tier.finish_request(request)
    print(f"stored {len(plan.keys)} blocks in chunks {plan.chunk_ids.tolist()},", end=" ")
    print(f"evicted {len(plan.evicted_keys)}")


def load(prompt: Prompt, blocks: list[int]) -> int:
    """Copy the cached prefix of a prompt into ``blocks``. Return its tokens."""
    request, keys = HostRequest(), keys_of(prompt)
    hit = tier.lookup_prefix(keys) or 0
    if hit:
        gpu[blocks[:hit]] = cpu[tier.prepare_load(request, keys[:hit])]
        tier.complete_load(keys[:hit])
    tier.finish_request(request)
    return hit * BLOCK_SIZE


system_prompt = np.arange(48, dtype=np.int32)
chats = [np.concatenate([system_prompt, np.full(40, 500 + n, dtype=np.int32)]) for n in range(4)]

gpu[10:15] = np.arange(10, 15)[:, None]
store(chats[0], blocks=[10, 11, 12, 13, 14])
store(chats[1], blocks=[10, 11, 12, 23, 24])
store(chats[2], blocks=[10, 11, 12, 33, 34])

for number, chat in enumerate(chats):
    print(f"chat {number}: {load(chat, blocks=[90, 91, 92, 93, 94])} of {len(chat)} tokens loaded")
print("the blocks are the same:", bool((gpu[90:93] == gpu[10:13]).all()))
print(f"{tier.num_free_chunks} of {tier.num_chunks} chunks are free")
