"""The metrics: their names, types, labels and meanings. ``docs/reference/metrics.md`` has the same
list; a test compares them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from kvoxide.outcomes import NAMES
from kvoxide.vllm.environment.fallbacks import FALLBACK_KINDS
from kvoxide.vllm.environment.log import SHADOW_PARTS

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

COMMON_LABELS: Final = ("model_name", "engine")
"""The labels of all metrics, with the values that vLLM's own metrics have."""

PARTS: Final = ("manager", "hasher", "host")
STANDSTILL_REASONS: Final = (
    "blocks",
    "never_fits",
    "remote_load",
    "connector_later",
    "grammar",
    "streaming",
    "other",
)
SCORING_FUNCTIONS: Final = ("recency", "frequency", "hazard")


@dataclass(frozen=True)
class Metric:
    """A metric.

    ``labels`` are the labels in addition to :data:`COMMON_LABELS`, each with its values, or without
    values if these are not known in advance.
    """

    name: str
    kind: Kind
    documentation: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))


METRICS: Final = (
    Metric(
        "kvoxide_info",
        "gauge",
        "1 for the present values of the labels, 0 for earlier values. code_of is the release "
        "whose rules hold. groups counts the KV cache groups of each kind.",
        {"version": (), "vllm": (), "code_of": (), "mode": (), "policy": (), "groups": ()},
    ),
    Metric(
        "kvoxide_active",
        "gauge",
        "1 if kvoxide provides this part of the server, 0 if vLLM's own code does.",
        {"part": PARTS},
    ),
    Metric(
        "kvoxide_fallbacks_total",
        "counter",
        "Times that vLLM's own code replaced a part of kvoxide, at the start or while serving.",
        {"reason": FALLBACK_KINDS},
    ),
    Metric(
        "kvoxide_poisoned",
        "gauge",
        "1 if this part of kvoxide failed and refuses every call.",
        {"part": ("manager", "host")},
    ),
    Metric(
        "kvoxide_shadow_calls_total",
        "counter",
        "Calls whose answers shadow mode compared.",
        {"part": tuple(SHADOW_PARTS)},
    ),
    Metric(
        "kvoxide_shadow_differences_total",
        "counter",
        "Differences that shadow mode found. Each ends the shadow of one part.",
        {"part": tuple(SHADOW_PARTS)},
    ),
    Metric(
        "kvoxide_prompt_tokens_total",
        "counter",
        "Prompt tokens of admitted requests, by what happened to them.",
        {"outcome": NAMES},
    ),
    Metric(
        "kvoxide_default_hit_tokens_total",
        "counter",
        "Estimated prompt tokens that vLLM's own policy would have hit. Adaptive retention only.",
    ),
    Metric(
        "kvoxide_blocks",
        "gauge",
        "Blocks of the pool by state, without the null block.",
        {"state": ("in_use", "evictable", "protected", "empty", "free")},
    ),
    Metric(
        "kvoxide_evictions_total",
        "counter",
        "Cached blocks that were evicted, by the kind of their group.",
        {"kind": ("full", "tail")},
    ),
    Metric(
        "kvoxide_evict_reuse_gap_seconds",
        "histogram",
        "Seconds from the eviction of a block to the next request that needs it.",
    ),
    Metric(
        "kvoxide_call_seconds",
        "histogram",
        "Seconds of a call of kvoxide's manager. One call in 64 is timed.",
        {"call": ("get_computed_blocks", "allocate_slots", "free")},
    ),
    Metric(
        "kvoxide_scoring_function",
        "gauge",
        "1 for the scoring function that adaptive retention uses, 0 for the others.",
        {"name": SCORING_FUNCTIONS},
    ),
    Metric(
        "kvoxide_standstill",
        "gauge",
        "1 while requests wait and none is scheduled, by the reason.",
        {"reason": STANDSTILL_REASONS},
    ),
    Metric(
        "kvoxide_hints_total",
        "counter",
        "Hints of requests, by how they were handled. Adaptive retention only.",
        {
            "hint": ("priority", "retain", "release", "session_end", "session_id", "other"),
            "result": ("taken", "clipped", "expired", "unknown", "malformed", "ignored"),
        },
    ),
    Metric(
        "kvoxide_host_capacity_bytes",
        "gauge",
        "Bytes of the CPU offload cache.",
    ),
    Metric(
        "kvoxide_host_used_bytes",
        "gauge",
        "Bytes of the CPU offload cache that hold KV or are being written.",
    ),
    Metric(
        "kvoxide_host_pinned_bytes",
        "gauge",
        "Bytes of the CPU offload cache that cannot be evicted now, because a transfer uses them.",
    ),
    Metric(
        "kvoxide_host_lookups_total",
        "counter",
        "Look-ups of requests in the CPU offload cache, by result. A request that waits for a "
        "transfer looks up again.",
        {"result": ("hit", "miss", "later")},
    ),
    Metric(
        "kvoxide_host_stored_bytes_total",
        "counter",
        "Bytes that were copied to the CPU offload cache.",
    ),
    Metric(
        "kvoxide_host_loaded_bytes_total",
        "counter",
        "Bytes that were copied from the CPU offload cache to the GPU.",
    ),
    Metric(
        "kvoxide_host_never_loaded_bytes_total",
        "counter",
        "Bytes that were evicted from the CPU offload cache and never loaded.",
    ),
)

BY_NAME: Final = {metric.name: metric for metric in METRICS}
