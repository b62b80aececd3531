"""Sweep policies and pool sizes on a Ray cluster, one run per processor.

Traces, groups, policies and results can be pickled, so a run is an ordinary Ray task. On the
command line, ``kvoxide replay TRACE --on ray`` does the same. No policy is the best in every pool,
so measure with your own traffic.

Run it on the processors of this machine, or on a cluster::

    pip install '.[ray]'
    python examples/ray_sweep.py
    python examples/ray_sweep.py ray://HOST:10001

It prints::

    blocks            2,000    4,000    8,000
    vLLM's default     1.9%    12.6%    55.4%
    adaptive           2.9%    16.7%    53.4%
"""

import sys

import numpy as np
import ray
from kvoxide import KVCacheGroupSpec, Policy, Simulation, SimulationResult, Trace

GROUPS = [
    KVCacheGroupSpec("full_attention", 16),
    KVCacheGroupSpec("sliding_window", 16, sliding_window=1024),
]
POLICIES = {
    "vLLM's default": Policy(retention_interval=0),
    "adaptive": Policy(retention="adaptive"),
}
POOL_SIZES = [2_000, 4_000, 8_000]


def chats() -> Trace:
    """Return 40 chats of 10 turns. Each prompt is the chat so far."""
    trace = Trace()
    rng = np.random.default_rng(seed=0)
    said = [rng.integers(50_000, size=500, dtype=np.int32) for _ in range(40)]
    for _ in range(10):
        for chat in rng.permutation(len(said)):
            said[chat] = np.append(said[chat], rng.integers(50_000, size=250, dtype=np.int32))
            trace.push_prompt(said[chat], output_length=50)
    return trace


def play(trace: Trace, policy: Policy, num_blocks: int) -> SimulationResult:
    """Play the trace once, with at most 8 requests at a time."""
    return Simulation(trace, GROUPS, num_blocks, policy=policy, concurrency=8).run()


def main() -> None:
    # Without an address, Ray would join any cluster that runs on this machine.
    ray.init(address=sys.argv[1] if len(sys.argv) > 1 else "local", log_to_driver=False)
    trace = ray.put(chats())
    task = ray.remote(play)
    tasks = {
        name: [task.remote(trace, policy, num_blocks) for num_blocks in POOL_SIZES]
        for name, policy in POLICIES.items()
    }
    print("blocks        ", *(f"{num_blocks:8,}" for num_blocks in POOL_SIZES))
    for name, results in tasks.items():
        shares = [it.hit_tokens / it.prompt_tokens for it in ray.get(results)]
        print(f"{name:14}", *(f"{share:8.1%}" for share in shares))
    ray.shutdown()


if __name__ == "__main__":
    main()
