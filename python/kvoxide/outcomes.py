"""The outcomes of prompt tokens: what each means, and which setting avoids it.

Each token of an admitted prompt has one of ten outcomes. Servers log and record them, and
``kvoxide why`` explains them. Both use this table. ``docs/how-to/find-lost-hits.md`` shows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Outcome:
    """One outcome. ``advice`` says how to avoid it, and is empty if nothing can. ``settings`` are
    the options and variables that the advice names, the most useful first."""

    name: str
    meaning: str
    advice: str = ""
    settings: tuple[str, ...] = ()
    is_hit: bool = False

    @property
    def is_avoidable(self) -> bool:
        """Whether a setting of the server or of its clients can avoid it."""
        return bool(self.advice)


HIT_GPU: Final = Outcome("hit_gpu", "found in the cache of the GPU", is_hit=True)
HIT_HOST: Final = Outcome(
    "hit_host", "loaded by a KV connector, such as CPU offloading", is_hit=True
)
HIT_ANSWER: Final = Outcome(
    "hit_answer",
    "found in the cache of the GPU, in a block with generated tokens of an earlier request",
    is_hit=True,
)
FIRST_TIME: Final = Outcome("first_time", "no earlier request is known to have computed it")
BELOW_BLOCK: Final = Outcome(
    "below_block",
    "computed before, but hits end only at block boundaries, and the last one comes earlier",
    "Hits need smaller steps. With Mamba layers, set --prefix-match-unit to a divisor of the block "
    "size, such as 16. Otherwise lower --block-size.",
    ("--prefix-match-unit", "--block-size"),
)
EVICTED_FULL: Final = Outcome(
    "evicted_full",
    "computed before, but its blocks of full attention were evicted",
    "The cache is too small for this traffic. Raise --gpu-memory-utilization, use "
    "--kv-cache-dtype fp8, or offload to CPU memory with --kv-offloading-size.",
    ("--gpu-memory-utilization", "--kv-cache-dtype", "--kv-offloading-size"),
)
EVICTED_TAIL: Final = Outcome(
    "evicted_tail",
    "its full attention is cached, but the window or state that a hit needs was evicted",
    "Windows or states are evicted too early. Set KVOXIDE_POLICY=adaptive. Without kvoxide's "
    "manager, keep --prefix-cache-retention-interval at 0 and raise --gpu-memory-utilization.",
    ("KVOXIDE_POLICY", "--prefix-cache-retention-interval", "--gpu-memory-utilization"),
)
NEVER_CACHED: Final = Outcome(
    "never_cached",
    "computed before, but no window or state after it was kept for a hit",
    "Windows or states are kept at too few places. Set KVOXIDE_POLICY=adaptive, or "
    "--prefix-cache-retention-interval to a multiple of the block size. With Mamba layers, states "
    "are kept only where steps end. A lower --max-num-batched-tokens gives more of them.",
    ("KVOXIDE_POLICY", "--prefix-cache-retention-interval", "--max-num-batched-tokens"),
)
OTHER_SALT_OR_ADAPTER: Final = Outcome(
    "other_salt_or_adapter",
    "computed before, but under another salt or LoRA adapter",
    "Salts and adapters separate caches. Let clients that trust each other send the same "
    "cache_salt, and the same adapter for shared text.",
    ("cache_salt",),
)
NOT_CACHEABLE: Final = Outcome(
    "not_cacheable",
    "had to be computed: the request does not read the cache, or it is the last token",
    "These requests cannot use the cache. Send them without prompt_logprobs and without "
    "skip_reading_prefix_cache, and start the server with --enable-prefix-caching.",
    ("prompt_logprobs", "skip_reading_prefix_cache", "--enable-prefix-caching"),
)

OUTCOMES: Final = (
    HIT_GPU,
    HIT_HOST,
    HIT_ANSWER,
    FIRST_TIME,
    BELOW_BLOCK,
    EVICTED_FULL,
    EVICTED_TAIL,
    NEVER_CACHED,
    OTHER_SALT_OR_ADAPTER,
    NOT_CACHEABLE,
)
"""All outcomes, in the order of all counts."""

NAMES: Final = tuple(outcome.name for outcome in OUTCOMES)


def by_name(counts: Sequence[int]) -> dict[str, int]:
    """Return counts in the order of :data:`OUTCOMES` by name."""
    return dict(zip(NAMES, counts, strict=True))


def largest_avoidable(counts: Mapping[str, int]) -> tuple[Outcome, int] | None:
    """Return the avoidable outcome with the most tokens, and their number. Return None if no
    avoidable outcome has tokens. An unknown name is ignored."""
    avoidable = ((outcome, counts.get(outcome.name, 0)) for outcome in OUTCOMES)
    found = [(each, count) for each, count in avoidable if each.is_avoidable and count > 0]
    return max(found, key=lambda pair: pair[1], default=None)
