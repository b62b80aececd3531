"""A model's configuration as vLLM reads it: the class to load, and the fields of its
parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.lab.model import own_classes, transformers_classes
from kvoxide.lab.model.fields import Fields
from kvoxide.lab.model.folder import config_file, has_beside, read_object
from kvoxide.lab.model.mistral_format import from_mistral_format, is_mistral_format
from kvoxide.lab.model.precision import model_dtype
from kvoxide.lab.model.quantization import Quantization, read_quantization
from kvoxide.lab.model.release import NEXT_STEP
from kvoxide.lab.model.serving import is_for_embeddings, note_on_embeddings, require_causal

_SEEING: Final = "ForConditionalGeneration"
_TEXT: Final = "text_config"
# Parts of a configuration, in the order in which vLLM looks for the precision of the weights.
_WITH_DTYPE: Final = ("vision_config", "encoder_config")
_WITHOUT_TYPE: Final = {
    "LongcatFlashForCausalLM": "longcat_flash",
    "LongcatFlashNgramForCausalLM": "longcat_flash",
}
# Types whose base class vLLM fails to build.
_NO_BASE_CLASS: Final = ("gemma3", "gemma3n", "kimi_k25")
# Classes that vLLM loads instead of the named one, if the folder has a file of this name.
_INSTEAD: Final = {
    "Qwen3_5ForConditionalGeneration": "joint_head_config.json",
    "Qwen3_5Model": "decision_config.json",
    "Qwen3OmniMoeForConditionalGeneration": "joint_head_config.json",
}


class UnknownModelError(ConfigError):
    """A model has no class, or a class that no family has."""


@dataclass(frozen=True)
class Config:
    """A model's configuration: the class that vLLM would load, the fields of its language model,
    and all fields.

    ``dtype`` is the model's precision. ``quantization`` is the precision of its KV cache.
    ``embeddings`` is a note if vLLM serves the model for embeddings, and otherwise empty.
    """

    architecture: str
    text: Fields
    dtype: str
    quantization: Quantization
    whole: Fields
    embeddings: str = ""

    @property
    def is_text(self) -> bool:
        """Whether the class of the model takes only text."""
        return not self.architecture.endswith(_SEEING)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what differs in a server."""
        return (*self._notes_on_code(), *filter(None, [self.embeddings]))

    def _notes_on_code(self) -> tuple[str, ...]:
        if not self.text.is_whole:
            return _note_on_absent(self.text.assumed)
        code = self.whole.get("auto_map")
        if not isinstance(code, Mapping) or "AutoConfig" not in code:
            return ()
        return (
            "kvoxide does not execute the folder's own configuration code (auto_map). A server"
            " with --trust-remote-code executes it and may read other values",
        )


def _note_on_absent(fields: list[str]) -> tuple[str, ...]:
    if not fields:
        return ()
    return (
        "kvoxide does not execute the model's own configuration code; fields that config.json"
        f" lacks count as absent: {', '.join(sorted(fields))}",
    )


def read_config(path: Path) -> Config:
    """Read the configuration in the directory ``path``, or in the file ``path``, and the other
    files of its folder that matter for the cache.

    Raises :class:`~kvoxide.ConfigError`, which says what is wrong with which file.
    """
    file = config_file(path)
    values = read_object(file)
    source = str(file)
    transformers_classes.require_sane(source, values)
    if is_mistral_format(values):
        values = from_mistral_format(file, values)
        config, is_whole = _as_given(source, values), True
    else:
        config, is_whole = _built(source, values)
    text = transformers_classes.text_config(source, config)
    if isinstance(text, Mapping):
        raise ConfigError(
            f"{source}: {_TEXT} needs a configuration class that comes with the model. kvoxide does"
            f" not execute a model's own code. {NEXT_STEP}"
        )
    transformers_classes.use_present_rope_names(source, config, text)
    architecture = _architecture(file, config, values)
    whole, language = Fields(source, config, is_whole), Fields(source, text, is_whole)
    require_causal(whole, language)
    is_pooling = is_for_embeddings(file, architecture)
    return Config(
        architecture,
        language,
        _dtype(source, config, text, is_pooling=is_pooling),
        read_quantization(file, values),
        whole,
        note_on_embeddings(file, architecture) if is_pooling else "",
    )


def _built(source: str, values: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return the configuration, and whether its class is known."""
    model_type = _model_type(source, values)
    if model_type in own_classes.UNKNOWN:
        raise UnknownModelError(
            f"{source}: vLLM has its own class for model_type {model_type!r}, which kvoxide does"
            f" not know. {NEXT_STEP}"
        )
    language = own_classes.LANGUAGE.get(model_type)
    if language is not None and (_TEXT in values or not own_classes.has_class(model_type)):
        return _with_language(source, values, language), True
    if own_classes.has_class(model_type):
        filled = own_classes.with_defaults(model_type, values)
        return transformers_classes.build(source, filled, None), True
    if model_type == "mistral" and "layer_types" in values:
        return transformers_classes.build(source, values, "ministral"), True
    model_type = own_classes.READ_AS.get(model_type, model_type)
    if transformers_classes.knows(model_type):
        return transformers_classes.build(source, values, model_type), True
    if transformers_classes.knows(model_type.lower()):
        raise ConfigError(
            f"{source}: model_type is {model_type!r}, which Transformers does not know; write"
            f" {model_type.lower()!r}"
        )
    return transformers_classes.build(source, values, None), False


def _as_given(source: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return a configuration with exactly the fields of Mistral's own format."""
    config = transformers_classes.build(source, values, None)
    if _TEXT in values:
        config.text_config = transformers_classes.build(source, values[_TEXT], None)
    return config


def _with_language(source: str, values: Mapping[str, Any], language: str) -> Any:  # noqa: ANN401
    inner = values.get(_TEXT) or {}
    if not isinstance(inner, Mapping):
        raise ConfigError(f"{source}: {_TEXT} is not a JSON object")
    text, _ = _built(source, {**inner, "model_type": language})
    outer = {name: value for name, value in values.items() if name != _TEXT}
    config = transformers_classes.build(source, outer, None)
    config.text_config = text
    return config


def _model_type(source: str, values: Mapping[str, Any]) -> str:
    model_type = values.get("model_type")
    named = values.get("architectures")
    if model_type is None and isinstance(named, list) and named:
        model_type = _WITHOUT_TYPE.get(str(named[0]))
    if not isinstance(model_type, str):
        raise ConfigError(
            f"{source}: model_type is {model_type!r}. vLLM refuses a file without it; add the"
            " model_type of the model's class, such as 'llama'"
        )
    return model_type


def _architecture(file: Path, config: Any, values: Mapping[str, Any]) -> str:  # noqa: ANN401
    """Return the class that vLLM loads: the first of the ``architectures``. Without any, it is the
    base class of the ``model_type``."""
    named = getattr(config, "architectures", None)
    model_type = values.get("model_type")
    named = named or [_base_class(model_type)]
    if isinstance(named, str):
        raise ConfigError(f"{file}: architectures is {named!r}; write it as a list, [{named!r}]")
    if not isinstance(named, list) or not isinstance(named[0], str):
        raise UnknownModelError(
            f"{file}: architectures names no model class, and Transformers has none for the"
            f" model_type {model_type!r}; name the class"
        )
    first = named[0]
    other = _INSTEAD.get(first)
    if other is not None and has_beside(file, other):
        raise UnknownModelError(
            f"{file.parent / other} makes vLLM load another class than {first}. {NEXT_STEP}"
        )
    return first


def _base_class(model_type: object) -> str | None:
    if model_type in _NO_BASE_CLASS:
        return None
    return transformers_classes.base_class(model_type)


def _dtype(source: str, config: Any, text: Any, *, is_pooling: bool) -> str:  # noqa: ANN401
    """Return the precision that vLLM computes in. The first part that names a precision counts."""
    parts = [config, text, *(getattr(config, name, None) for name in _WITH_DTYPE)]
    named = (_named_dtype(part) for part in parts)
    found = next((str(each) for each in named if each is not None), None)
    return model_dtype(source, found, str(config.model_type), is_pooling=is_pooling)


def _named_dtype(part: Any) -> Any:  # noqa: ANN401
    if isinstance(part, Mapping):
        return part.get("dtype", part.get("torch_dtype"))
    return getattr(part, "dtype", None)
