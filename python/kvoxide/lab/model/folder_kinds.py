"""Recognises other paths and names that users give instead of a model's folder: of a hub, of
weights, of draft models."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError

_NAME_ON_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WEIGHTS: Final = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx")
_DRAFTS: Final = re.compile(
    r"(P?[Ee]agle3?[A-Z]|DFlash|DSpark|Medusa|MLPSpeculator)\w*"
    r"|\w*(MTP|MTPModel|DraftModel|DSparkModel|Eagle3|AssistantModel|XPressModel"
    r"|ExtractHiddenStatesModel)"
)
_DRAFT_TYPES: Final = ("eagle", "medusa", "mlp_speculator", "speculators")


def require_folder(path: Path) -> None:
    """Raise :class:`~kvoxide.ConfigError` for a path that is neither a folder nor a configuration
    file, with a hint at what it may be."""
    if path.is_file() and path.suffix.lower() in _WEIGHTS:
        raise ConfigError(
            f"{path} is a file of weights. Name the model's folder, which has a config.json. A GGUF"
            " file has none; use the folder of the original model"
        )
    if not path.exists() and _NAME_ON_HUB.fullmatch(str(path)):
        raise ConfigError(
            f"{path} is not a folder on this machine, and kvoxide downloads nothing. Run `hf"
            f" download {path} config.json --local-dir DIR` and name DIR"
        )


def require_no_draft(file: Path, values: Mapping[str, Any]) -> None:
    """Raise :class:`~kvoxide.ConfigError` if the configuration ``values`` in ``file`` describe a
    draft model."""
    named = values.get("architectures")
    first = str(named[0]) if isinstance(named, list) and named else ""
    kind = values.get("model_type")
    is_draft = kind in _DRAFT_TYPES or values.get("speculators_config") is not None
    if is_draft or _DRAFTS.fullmatch(first):
        raise ConfigError(
            f"{file} is the configuration of a draft model ({first or kind}). A server loads it in"
            " addition to another model. Name the folder of that other model"
        )
