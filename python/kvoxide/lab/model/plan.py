"""The KV cache of a model: its groups and their blocks, as vLLM would create them."""

from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from kvoxide._core import ConfigError, KVCacheConfig, KVCacheGroupSpec
from kvoxide.lab.model.block_sizes import with_block_sizes
from kvoxide.lab.model.config import read_config
from kvoxide.lab.model.context_length import max_model_len
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families import family_of
from kvoxide.lab.model.families.rotary import require_rotary
from kvoxide.lab.model.families.sharding import require_shared_encoder
from kvoxide.lab.model.gpu import GPUS
from kvoxide.lab.model.grouping import LayerGroup, group_layers
from kvoxide.lab.model.hits import hit_tokens
from kvoxide.lab.model.layers import LayerCache
from kvoxide.lab.model.memory import block_bytes, num_blocks, require_states
from kvoxide.lab.model.precision import AUTO
from kvoxide.lab.model.quantization import Quantization, require_known_method
from kvoxide.lab.model.release import NEXT_STEP
from kvoxide.lab.model.serving import require_whole_prompts, why_not_cached


@dataclass(frozen=True)
class ModelPlan:
    """The groups of a model, and their memory on one rank.

    ``block_bytes`` is the memory of one block, of all layers that share its block table, on the
    rank where it is largest. ``max_model_len`` is in tokens. ``dtype`` is the model's precision.
    ``quantization`` is what the checkpoint says about the cache. ``own_cache_dtype`` is the cache's
    precision if the class has only one. ``reading`` has notes on how the configuration was read.
    ``why_not_asked`` is why vLLM itself did not answer although it is installed.
    ``prefix_caching`` is whether prefixes are cached.
    """

    architecture: str
    groups: tuple[LayerGroup, ...]
    block_bytes: int
    max_model_len: int
    deployment: Deployment
    dtype: str
    quantization: Quantization
    own_cache_dtype: str = ""
    reading: tuple[str, ...] = ()
    why_not_asked: str = ""
    prefix_caching: bool = True

    @property
    def asked(self) -> str:
        """Empty: vLLM did not compute this plan."""
        return ""

    @property
    def hit_tokens(self) -> int:
        """Hits are multiples of this many tokens; 0 without prefix caching."""
        return hit_tokens(self.kv_cache_groups) if self.prefix_caching else 0

    @property
    def kinds(self) -> list[str]:
        """The kind of each group."""
        return [group.spec.kind for group in self.groups]

    @property
    def layers_per_group(self) -> list[int]:
        """How many layers each group has."""
        return [len(group.layers) for group in self.groups]

    @property
    def cache_dtype(self) -> str:
        """The precision of the KV cache."""
        wanted = self.deployment.cache_dtype
        return self.own_cache_dtype or (self.dtype if wanted == AUTO else wanted)

    @property
    def cache_dtype_source(self) -> str:
        """The file that sets the precision, empty if no file does."""
        is_said = self.deployment.cache_dtype == self.quantization.cache_dtype
        return self.quantization.source if is_said else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts that a reader should know in addition to the figures."""
        notes = (self.quantization.note, *self.reading, self.why_not_asked)
        return tuple(note for note in notes if note)

    @property
    def kv_cache_groups(self) -> list[KVCacheGroupSpec]:
        """The groups for a manager or a simulation, in vLLM's order."""
        return [_group_spec(group.spec) for group in self.groups]

    def num_blocks(self, memory: int) -> int:
        """Return how many blocks ``memory`` bytes hold. ``memory`` is what each rank has for its KV
        cache.

        Like vLLM, raises :class:`~kvoxide.ConfigError` if a request of ``max_model_len`` does not
        fit, or if there is no room for a state of each of ``max_num_seqs`` requests.
        """
        return num_blocks(
            memory, self.block_bytes, self.groups, self.max_model_len, self.deployment
        )

    def check_blocks(self, blocks: int) -> None:
        """Raise :class:`~kvoxide.ConfigError` if vLLM would not start with this number of blocks,
        whatever their size."""
        has_states = any(group.spec.is_state for group in self.groups)
        require_states(blocks, self.deployment, has_states=has_states)

    def kv_cache_config(self, memory: int) -> KVCacheConfig:
        """Return the configuration of a manager with ``memory`` bytes. Raises the errors of
        :meth:`num_blocks`."""
        return KVCacheConfig(self.num_blocks(memory), self.kv_cache_groups)

    def describe(self) -> list[str]:
        """Return a line for each run of equal groups: how many, of what, in how many layers
        each."""
        runs = groupby(self.groups, key=lambda group: (group.spec, len(group.layers)))
        return [
            f"{len(list(run))} x {_describe(spec)}, {layers} layers" for (spec, layers), run in runs
        ]


def plan_model(path: Path | str, deployment: Deployment | None = None) -> ModelPlan:
    """Plan the KV cache of a model for ``deployment``. ``path`` is its ``config.json`` or the
    directory of it.

    Raises :class:`~kvoxide.ConfigError` if the file cannot be used, if the model's class is not
    known here, or if the model cannot be served in this way.
    """
    config = read_config(Path(path))
    family = family_of(config)
    quantization = config.quantization
    if not family.applies_scheme:
        quantization = quantization.without_scheme(config.architecture)
    deployment = (deployment or Deployment()).for_checkpoint(quantization.cache_dtype)
    if config.embeddings:
        deployment = replace(deployment, async_scheduling=False)
    _require_hopper(deployment)
    if deployment.pipeline_parallel > 1 and not family.has_stages:
        raise ConfigError(
            f"vLLM does not support pipeline parallelism for a {config.architecture}; set"
            " pipeline_parallel to 1"
        )
    require_shared_encoder(config.whole, deployment.tensor_parallel)
    require_rotary(config.text)
    require_known_method(config.whole.source, config.quantization)
    kernels = family.kernels_of(config)
    length = max_model_len(config, deployment.max_model_len)
    is_pooling = bool(config.embeddings)
    why_uncached = why_not_cached(config.whole, config.text, is_pooling=is_pooling)
    caches = not why_uncached if deployment.prefix_caching is None else deployment.prefix_caching
    layers = with_block_sizes(
        family.layers(config, deployment), kernels, deployment, None if caches else length
    )
    groups = group_layers(layers, is_packed=kernels.is_packed)
    require_whole_prompts(config.whole, config.text, deployment, length)
    return ModelPlan(
        config.architecture,
        tuple(groups),
        block_bytes(groups, len(layers), deployment),
        length,
        deployment,
        config.dtype,
        quantization,
        family.cache_dtype,
        (*config.notes, *_note_on_caching(why_uncached, deployment.prefix_caching)),
        prefix_caching=caches,
    )


def _note_on_caching(why_uncached: str, wanted: bool | None) -> list[str]:
    if not why_uncached or wanted is False:
        return []
    by_default = f"{why_uncached} vLLM disables prefix caching for this model by default"
    if wanted:
        return [f"{by_default}; --enable-prefix-caching enables it here"]
    return [f"{by_default}, so nothing is hit; --enable-prefix-caching enables it"]


def _require_hopper(deployment: Deployment) -> None:
    if not GPUS[deployment.gpu].is_hopper:
        known = ", ".join(name for name, gpu in GPUS.items() if gpu.is_hopper)
        raise ConfigError(
            f"--gpu is {deployment.gpu}; without vLLM, kvoxide knows block sizes only for {known}."
            f" {NEXT_STEP}"
        )


def _group_spec(layer: LayerCache) -> KVCacheGroupSpec:
    if layer.is_state:
        return KVCacheGroupSpec(
            layer.kind,
            layer.tokens,
            num_prefill_checkpoint_blocks=layer.num_prefill_checkpoint_blocks or None,
            prefill_checkpoint_alignment=layer.prefill_checkpoint_alignment,
        )
    if layer.kind == "chunked_local_attention":
        return KVCacheGroupSpec(layer.kind, layer.tokens, attention_chunk_size=layer.window)
    return KVCacheGroupSpec(layer.kind, layer.tokens, sliding_window=layer.window)


def _describe(layer: LayerCache) -> str:
    window = "" if layer.window is None else f", window {layer.window:,}"
    return f"{layer.kind}, blocks of {layer.tokens:,} tokens{window}"
