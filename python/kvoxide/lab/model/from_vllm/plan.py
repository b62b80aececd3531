"""Turns an answer of vLLM into a plan of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from kvoxide._core import KVCacheConfig, KVCacheGroupSpec, UnsupportedGroupError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.memory import require_request, require_states
from kvoxide.lab.model.precision import AUTO

_STATES: Final = ("mamba", "mamba_none", "MambaSpec")


@dataclass(frozen=True)
class VllmPlan:
    """The groups of a model and their memory on one rank, from an answer of vLLM. It has the
    attributes of a :class:`~kvoxide.lab.model.ModelPlan`."""

    answer: Mapping[str, Any]
    deployment: Deployment

    @property
    def asked(self) -> str:
        """The vLLM that answered."""
        return f"vLLM {self.answer['vllm']}"

    @property
    def architecture(self) -> str:
        """The class that vLLM loads."""
        return str(self.answer["architecture"])

    @property
    def block_bytes(self) -> int:
        """The bytes of a block on the rank where it takes most."""
        return int(self.answer["block_bytes"])

    @property
    def max_model_len(self) -> int:
        """The longest sequence in tokens."""
        return int(self.answer["max_model_len"])

    @property
    def hit_tokens(self) -> int:
        """Hits are multiples of this many tokens."""
        return int(self.answer["hit_tokens"])

    @property
    def cache_dtype(self) -> str:
        """The precision of the KV cache."""
        found = str(self.answer["cache_dtype"])
        return str(self.answer["dtype"]) if found == AUTO else found

    @property
    def cache_dtype_source(self) -> str:
        """Always empty: an answer does not name the file that sets the precision."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts that a reader should know in addition to the figures."""
        if self.prefix_caching or self.deployment.prefix_caching is False:
            return ()
        if self.deployment.prefix_caching:
            return (
                f"{self.asked} disables prefix caching for this model, and no option changes that",
            )
        return (
            f"{self.asked} disables prefix caching for this model by default, so nothing is hit;"
            " --enable-prefix-caching enables it",
        )

    @property
    def prefix_caching(self) -> bool:
        """Whether prefixes are cached."""
        return bool(self.answer["has_prefix_caching"])

    @property
    def kinds(self) -> list[str]:
        """The kind of each group, or vLLM's name of its class if kvoxide has no such kind."""
        return [row["kind"] for row in self.answer["groups"]]

    @property
    def layers_per_group(self) -> list[int]:
        """How many layers each group has."""
        return [row["layers"] for row in self.answer["groups"]]

    @property
    def kv_cache_groups(self) -> list[KVCacheGroupSpec]:
        """The groups for a manager or a simulation, in vLLM's order.

        Raises :class:`~kvoxide.UnsupportedGroupError` for a kind that kvoxide does not have.
        """
        return [_spec(row) for row in self.answer["groups"]]

    def num_blocks(self, memory: int) -> int:
        """See :meth:`kvoxide.lab.model.ModelPlan.num_blocks`."""
        blocks = memory // self.block_bytes
        needed = -(-int(self.answer["request_bytes"]) // self.block_bytes)
        require_request(memory, self.block_bytes, needed, self.max_model_len)
        self.check_blocks(blocks)
        return blocks

    def check_blocks(self, blocks: int) -> None:
        """See :meth:`kvoxide.lab.model.ModelPlan.check_blocks`."""
        has_states = any(row["kind"] in _STATES for row in self.answer["groups"])
        require_states(blocks, self.deployment, has_states=has_states)

    def kv_cache_config(self, memory: int) -> KVCacheConfig:
        """See :meth:`kvoxide.lab.model.ModelPlan.kv_cache_config`."""
        return KVCacheConfig(self.num_blocks(memory), self.kv_cache_groups)

    def describe(self) -> list[str]:
        """Return a line for each run of equal groups: how many, of what, in how many layers
        each."""
        runs = groupby(map(_described, self.answer["groups"]))
        return [f"{len(list(run))} x {text}" for text, run in runs]


def _spec(row: Mapping[str, Any]) -> KVCacheGroupSpec:
    if not row["is_native"]:
        raise UnsupportedGroupError(
            f"kvoxide has no kind of KV cache group for vLLM's {row['kind']}"
        )
    cacheable = row["prefix_cacheable"]
    sizes: dict[str, Any] = {name: size for name, size in row["sizes"].items() if size}
    return KVCacheGroupSpec(row["kind"], row["block_size"], prefix_cacheable=cacheable, **sizes)


def _described(row: Mapping[str, Any]) -> str:
    windows = {name: size for name, size in row["sizes"].items() if size and "window" in name}
    chunk = row["sizes"].get("attention_chunk_size")
    window = next(iter(windows.values()), chunk)
    told = f", window {window:,}" if window else ""
    return f"{row['kind']}, blocks of {row['block_size']:,} tokens{told}, {row['layers']} layers"
