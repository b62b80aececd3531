"""Finds a configuration for each class of vLLM's registry."""

import json
import re
from dataclasses import dataclass
from typing import Any

from ..cases import CONFIGS, name_of
from .written import LIKE, WRITTEN

Fields = dict[str, Any]
# The configurations of these models are used, although other models of their class come first by
# name.
_USUAL = (
    "deepseek-v3",
    "deepseek-v3.2",
    "gemma-3-27b",
    "llama-3.1-8b",
    "llama-4-scout-multimodal",
    "ministral-8b",
    "mistral-small-3.1-24b",
    "phi-3-mini",
    "qwen2.5-7b",
    "qwen3-30b-a3b",
    "qwen3-8b",
    "qwen3-vl-8b",
    "qwen3.5-35b-a3b",
    "qwen3.5-9b",
)


@dataclass(frozen=True)
class Origin:
    """A class of the registry, the configuration class that reads it, and the given fields. The
    configuration class is None if the configuration comes with the model."""

    name: str
    config_class: Any
    given: Fields


def registered() -> dict[str, list[str]]:
    """Return the names of vLLM's classes by table, in the order of the comparison."""
    from vllm.model_executor.models import registry

    tables = {
        "text": registry._TEXT_GENERATION_MODELS,
        "transformers": registry._TRANSFORMERS_SUPPORTED_MODELS,
        "multimodal": registry._MULTIMODAL_MODELS,
        "pooling": {
            **registry._EMBEDDING_MODELS,
            **registry._LATE_INTERACTION_MODELS,
            **registry._REWARD_MODELS,
            **registry._TOKEN_CLASSIFICATION_MODELS,
            **registry._SEQUENCE_CLASSIFICATION_MODELS,
        },
        "backend": registry._TRANSFORMERS_BACKEND_MODELS,
        "drafts": registry._SPECULATIVE_DECODING_MODELS,
    }
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for table, classes in tables.items():
        found[table] = [name for name in classes if name not in seen]
        seen.update(classes)
    assert seen == set(registry._VLLM_MODELS)
    return found


def origins(names: list[str]) -> dict[str, Origin]:
    """Return the origin of each class that has a configuration."""
    published, types = _published(), _types()
    found = {name: _origin(name, published, types) for name in names}
    return {name: origin for name, origin in found.items() if origin}


def _origin(name: str, published: dict[str, Fields], types: dict[str, str]) -> Origin | None:
    given = published.get(name) or WRITTEN.get(name)
    if given is None:
        model_type = LIKE.get(name) or types.get(name) or types.get(_bare(name))
        if model_type is None:
            return None
        given = {"model_type": model_type}
    given = {"architectures": [name], "dtype": "bfloat16", **given}
    return Origin(name, config_class(given.get("model_type")), given)


def config_class(model_type: Any) -> Any:
    """Return the class that reads a configuration of this type in vLLM, or None if there is
    none."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    if model_type in _CONFIG_REGISTRY:
        return _CONFIG_REGISTRY[model_type]
    # The get method does not load the class.
    return CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else None  # noqa: SIM401


def defaults(owner: Any) -> Fields:
    """Return the fields of a configuration class. Return none unless all of them have defaults."""
    try:
        return plain(owner().to_dict()) if owner else {}
    except Exception:
        return {}


def plain(fields: Fields) -> Fields:
    """Return the fields as they are after a round trip through JSON."""
    found: Fields = json.loads(json.dumps(fields, default=str))
    return found


def _published() -> dict[str, Fields]:
    """Return the configuration of each class that a model of :mod:`..cases` has. Models in
    ``_USUAL`` come first, then the first by name."""
    found: dict[str, Fields] = {}
    for path in sorted(CONFIGS, key=lambda path: (name_of(path) not in _USUAL, name_of(path))):
        fields = json.loads((path / "config.json" if path.is_dir() else path).read_text())
        for name in fields.get("architectures", []):
            found.setdefault(name, fields)
    return found


def _types() -> dict[str, str]:
    """Return the ``model_type`` of each class that Transformers maps, and of the bare names of
    configurations."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    known = set(CONFIG_MAPPING_NAMES) | set(_CONFIG_REGISTRY)
    found: dict[str, str] = {}
    for table, mapping in vars(modeling_auto).items():
        if not table.endswith("_MAPPING_NAMES"):
            continue
        for model_type, names in mapping.items():
            for name in [names] if isinstance(names, str) else names or []:
                if model_type in known:
                    found.setdefault(name, model_type)
    for model_type, name in CONFIG_MAPPING_NAMES.items():
        found.setdefault(_bare(name), model_type)
    return found


def _bare(name: str) -> str:
    ending = r"(ForCausalLM|ForConditionalGeneration|LMHeadModel|Model|MTP|MTPModel|Config)$"
    return re.sub(ending, "", name).lower().replace("_", "")
