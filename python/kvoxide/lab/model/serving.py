"""Finds models that vLLM serves for another purpose than to generate text after a prompt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.fields import Fields
from kvoxide.lab.model.pooling import MODULES, pooling_of

_ENDINGS_OF_TEXT: Final = ("LMHeadModel", "ChatModel")
# Base classes that vLLM's registry has as models that generate text.
_BASES_OF_TEXT: Final = ("Gemma2Model", "LlamaModel", "MistralModel", "Qwen2Model")


def is_for_embeddings(file: Path, architecture: str) -> bool:
    """Return whether vLLM serves the class in the folder of a configuration for embeddings."""
    if pooling_of(file) is not None:
        return True
    is_base = architecture.endswith("Model") and not architecture.endswith(_ENDINGS_OF_TEXT)
    return is_base and architecture not in _BASES_OF_TEXT


def note_on_embeddings(file: Path, architecture: str) -> str:
    """Return a note on how a plan differs for embeddings."""
    if pooling_of(file) is not None:
        return (
            f"vLLM serves this model for embeddings, because {MODULES} names a pooling. To plan for"
            f" text, remove {MODULES} from the folder"
        )
    return (
        f"vLLM serves a {architecture} for embeddings. To plan for text, name a class that"
        " generates text in architectures of config.json"
    )


def require_causal(*parts: Fields) -> None:
    """Raise :class:`~kvoxide.ConfigError` for a model whose tokens also attend to later ones."""
    for part in parts:
        if part.has("is_causal") and part.get("is_causal") is False:
            raise ConfigError(
                f"{part.source}: is_causal is false. Such a model has no KV cache, so there is"
                " nothing to plan. If the model generates text, remove is_causal"
            )


def why_not_cached(whole: Fields, text: Fields, *, is_pooling: bool) -> str:
    """Return why vLLM caches no prefixes of a model by default, as a sentence; empty if it does."""
    if is_pooling:
        pooling = pooling_of(Path(whole.source))
        if pooling is None or pooling.reuses_prefixes:
            return ""
        return f"{pooling.file} names the pooling {', '.join(pooling.kinds)}."
    source = next(_with_encoder(whole, text), None)
    return "" if source is None else f"{source}: is_encoder_decoder is true."


def require_whole_prompts(whole: Fields, text: Fields, deployment: Deployment, length: int) -> None:
    """Raise :class:`~kvoxide.ConfigError` if vLLM computes each prompt in one step and refuses the
    ``length`` therefore."""
    source = next(_with_encoder(whole, text), None)
    if source is not None and deployment.max_batched_tokens < length:
        raise ConfigError(
            f"{source}: is_encoder_decoder is true. Then vLLM computes each prompt in one step. It"
            f" refuses max_model_len {length:,} above {deployment.max_batched_tokens:,} batched"
            " tokens. If the model has no encoder, remove is_encoder_decoder"
        )


def _with_encoder(*parts: Fields) -> Iterator[str]:
    return (
        part.source
        for part in parts
        if part.has("is_encoder_decoder") and part.get("is_encoder_decoder")
    )
