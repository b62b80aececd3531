"""Plot the hit share of two policies over the size of the pool, as an SVG file.

The traffic is chats that come back. ``kvoxide replay TRACE --blocks 1000,2000,4000 --plot
shares.svg`` draws the same for a recorded trace.

Run it::

    pip install . matplotlib
    python examples/plot.py shares.svg

It prints::

    least recently used   15.9%  24.6%  33.0%  39.7%  44.6%
    adaptive              16.1%  26.1%  37.3%  41.7%  45.1%
    wrote shares.svg
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from kvoxide import KVCacheGroupSpec, Policy, Simulation, Trace

GROUPS = [KVCacheGroupSpec("full_attention", 16)]
POLICIES = {"least recently used": Policy(), "adaptive": Policy(retention="adaptive")}
POOL_SIZES = [500, 1_000, 1_500, 2_000, 2_500]


def traffic() -> Trace:
    """Return 300 prompts: half of them are turns of 20 chats, half are single questions."""
    trace = Trace()
    rng = np.random.default_rng(seed=0)
    chats = [rng.integers(50_000, size=400, dtype=np.int32) for _ in range(20)]
    for _ in range(150):
        chat = rng.integers(len(chats))
        chats[chat] = np.append(chats[chat], rng.integers(50_000, size=100, dtype=np.int32))
        trace.push_prompt(chats[chat], output_length=20)
        trace.push_prompt(rng.integers(50_000, size=600, dtype=np.int32), output_length=20)
    return trace


def hit_share(trace: Trace, policy: Policy, num_blocks: int) -> float:
    """Return the share of prompt tokens that came from the cache."""
    result = Simulation(trace, GROUPS, num_blocks, policy=policy, concurrency=4).run()
    return result.hit_tokens / result.prompt_tokens


def main() -> None:
    path = sys.argv[1]
    trace = traffic()
    figure, axes = plt.subplots()
    for name, policy in POLICIES.items():
        shares = [hit_share(trace, policy, num_blocks) for num_blocks in POOL_SIZES]
        axes.plot(POOL_SIZES, shares, marker="o", label=name)
        print(f"{name:20}", *(f"{share:6.1%}" for share in shares))
    axes.set_xlabel("blocks in the pool")
    axes.set_ylabel("hit share of prompt tokens")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend()
    figure.savefig(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
