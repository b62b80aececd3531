"""Finds models that vLLM 0.33.0 serves for another purpose than to generate text after a prompt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.model.deployment import Deployment
from kvoxide.model.fields import Fields
from kvoxide.model.folder import has_beside

# Sentence Transformers writes this file.
_MODULES: Final = "modules.json"
_ENDINGS_OF_TEXT: Final = ("LMHeadModel", "ChatModel")
# Base classes that vLLM's registry has as models that generate text.
_BASES_OF_TEXT: Final = ("Gemma2Model", "LlamaModel", "MistralModel", "Qwen2Model")


def is_for_embeddings(file: Path, architecture: str) -> bool:
    """Return whether vLLM serves the class in the folder of a configuration for embeddings."""
    if has_beside(file, _MODULES):
        return True
    is_base = architecture.endswith("Model") and not architecture.endswith(_ENDINGS_OF_TEXT)
    return is_base and architecture not in _BASES_OF_TEXT


def note_on_embeddings(file: Path, architecture: str) -> str:
    """Return a note on how a plan differs for embeddings."""
    if has_beside(file, _MODULES):
        return (
            f"vLLM serves a folder with a {_MODULES} for embeddings. It reuses no prefixes there"
            " if the pooling is another one than the last token's. To plan for text, remove"
            f" {_MODULES} from the folder"
        )
    return (
        f"vLLM serves a {architecture} for embeddings. To plan for text, name the class that"
        " generates text in architectures of config.json"
    )


def require_causal(*parts: Fields) -> None:
    """Raise :class:`~kvoxide.ConfigError` for a model whose tokens also attend to later ones."""
    for part in parts:
        if part.has("is_causal") and part.get("is_causal") is False:
            raise ConfigError(
                f"{part.source}: is_causal is false. Such a model keeps no KV cache, so there is"
                " nothing to plan. For a model that generates text, remove is_causal"
            )


def note_on_encoder(whole: Fields, text: Fields, deployment: Deployment, length: int) -> str:
    """Return a note if the configuration says that the model has an encoder, otherwise an empty
    one.

    Raises :class:`~kvoxide.ConfigError` if vLLM then refuses the ``length``.
    """
    source = next(_with_encoder(whole, text), None)
    if source is None:
        return ""
    if deployment.max_batched_tokens < length:
        raise ConfigError(
            f"{source}: is_encoder_decoder is true. vLLM computes each prompt in one step then, and"
            f" refuses a max_model_len {length:,} above {deployment.max_batched_tokens:,} batched"
            " tokens. For a model without an encoder, remove is_encoder_decoder"
        )
    return (
        f"{source}: is_encoder_decoder is true; vLLM switches prefix caching off for this model."
        " For a model without an encoder, remove is_encoder_decoder"
    )


def _with_encoder(*parts: Fields) -> Iterator[str]:
    return (
        part.source
        for part in parts
        if part.has("is_encoder_decoder") and part.get("is_encoder_decoder")
    )
