"""Describes the manager of a server in the line that is logged at start."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvoxide._core import KVCacheGroupSpec
from kvoxide.vllm.adapter import group_specs
from kvoxide.vllm.environment import Settings, accepted_certificate, recognise, releases


def describe(arguments: Mapping[str, Any], settings: Settings) -> str:
    """Describe a manager that was constructed with ``arguments`` (vLLM's, by name)."""
    config = arguments["kv_cache_config"]
    groups = group_specs(config.kv_cache_groups)
    line = (
        f"{_describe_groups(groups)}; {config.num_blocks} blocks; "
        f"{_describe_policy(config, settings)}"
    )
    if settings.pin_min_drop_size is not None:
        line += "; " + _describe_pinning(
            settings.pin_min_drop_size,
            pinned_capacity(groups, config.num_blocks, arguments["max_model_len"]),
        )
    if (certificate := accepted_certificate()) is not None:
        line += f"; vLLM is not a known release, but verified with {certificate.num_calls} calls"
    if settings.check_every:
        line += f"; all invariants are checked once in {settings.check_every} calls"
    return line


@dataclass(frozen=True)
class PinnedCapacity:
    """How many tokens of ended requests a pool can hold pinned while nothing runs.

    ``blocks`` is the pool without the null block. ``prefix_tokens`` is the length of the counted
    prefixes, the longest that the model takes. ``prefixes`` is how many of them fit. ``tokens`` is
    how many tokens fit, including a part of one more prefix.
    """

    blocks: int
    tokens: int
    prefixes: int
    prefix_tokens: int


def pinned_capacity(
    groups: Sequence[KVCacheGroupSpec], num_blocks: int, max_model_len: int
) -> PinnedCapacity:
    """Return the capacity of the pinned tier. A prefix takes the blocks that a request holds when
    it ends."""
    blocks = num_blocks - 1
    per_prefix = sum(group.num_blocks_at_end(max_model_len) for group in groups)
    return PinnedCapacity(
        blocks=blocks,
        tokens=blocks * max_model_len // max(per_prefix, 1),
        prefixes=blocks // max(per_prefix, 1),
        prefix_tokens=max_model_len,
    )


def _describe_groups(groups: Sequence[KVCacheGroupSpec]) -> str:
    kinds = Counter(group.kind for group in groups)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{len(groups)} group{'' if len(groups) == 1 else 's'} ({listed})"


def _describe_policy(config: Any, settings: Settings) -> str:
    if settings.retention == "standard" and settings.retention_interval is None:
        interval = config.prefix_cache_retention_interval
        return f"policy of vLLM {_described_release()} (retention interval {interval})"
    return f"policy {settings.policy} (from the environment)"


def _described_release() -> str:
    """Return vLLM's version. If it has the code of another release, name that release too."""
    version, recognition = releases.installed_version(), recognise()
    code = recognition.release.version
    if not recognition.is_known:
        return f"{version} (rules of {code})"
    return code if version == code else f"{version} (code of {code})"


def _describe_pinning(min_drop_size: int, capacity: PinnedCapacity) -> str:
    return (
        f"pinned tier on for drops of {min_drop_size} blocks or more. It can hold "
        f"{capacity.blocks} blocks, which are {capacity.tokens} tokens or {capacity.prefixes} "
        f"prefixes of {capacity.prefix_tokens} tokens"
    )
