"""Reads the files of a model's folder as JSON objects. A file is read as a whole or not at all."""

import codecs
import json
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError

CONFIG: Final = "config.json"
MISTRAL_CONFIG: Final = "params.json"
# Precisions, the longest sequence, and sizes of images.
_BESIDE: Final = (
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
_LFS: Final = b"version https://git-lfs"
_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# More than any configuration needs, even with lists of quantized layers.
_MAX_BYTES: Final = 64 * 2**20


def config_file(path: Path) -> Path:
    """Return the configuration in the directory ``path``, or ``path`` itself if it is a file.

    In a directory it is ``config.json``. As in vLLM, it is ``params.json``, Mistral's own format,
    in two cases: it is the only one, or the weights are in Mistral's format too.
    """
    if not path.is_dir():
        return path
    mistral = path / MISTRAL_CONFIG
    has_mistral_weights = any(path.glob("consolidated*.safetensors"))
    if mistral.exists() and (has_mistral_weights or not (path / CONFIG).exists()):
        return mistral
    return path / CONFIG


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in ``file``. Raises :class:`~kvoxide.ConfigError`, which says what is
    wrong with it."""
    values = _read_json(file)
    if not isinstance(values, dict):
        raise ConfigError(
            f"{file} is not a JSON object but a {type(values).__name__}. vLLM reads an object of"
            " fields; copy the file again from the model's publisher"
        )
    return values


def _read_json(file: Path) -> object:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ConfigError(
                f"{file} has {file.stat().st_size:,} bytes; a configuration has at most"
                f" {_MAX_BYTES:,}"
            )
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    try:
        values: object = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {_not_json(content, error)}") from None
    return values


def _not_json(content: bytes, error: Exception) -> str:
    """Return in words what a file contains instead of JSON, and what to do."""
    start = content[:64].lstrip()
    if not start:
        return "it is empty. Copy the file again from the model's publisher"
    if start.startswith(_LFS):
        return "it is a pointer of Git LFS. Run `git lfs pull` in its folder"
    if start.startswith(b"<"):
        return "it is a web page. Download the file itself"
    if start.startswith(_MARKS):
        return (
            "it begins with a byte order mark, which vLLM does not read. Save it as UTF-8 without"
            " that mark"
        )
    if isinstance(error, RecursionError):
        return "its objects are nested too deeply"
    return str(error).partition(";")[0]


def model_files(path: Path) -> dict[str, bytes]:
    """Return the configuration at ``path``, a directory or a file, and the other files of its
    folder that vLLM reads for a cache. The result maps names in a folder to contents.

    Raises the errors of :func:`read_object` and :func:`read_beside`.
    """
    config = config_file(path)
    values = read_object(config)
    is_mistral = "architectures" not in values and "n_layers" in values
    files = {MISTRAL_CONFIG if is_mistral else CONFIG: config.read_bytes()}
    for name in _BESIDE:
        if read_beside(config, name) is not None:
            files[name] = (config.parent / name).read_bytes()
    return files


def read_beside(config: Path, name: str) -> dict[str, Any] | None:
    """Return the JSON object in the file ``name`` of the folder of the configuration file
    ``config``. Return None if there is no such file, or if ``config`` does not have the name that
    it has in a folder.

    Raises the errors of :func:`read_object`, and :class:`~kvoxide.ConfigError` for a link out of
    the folder.
    """
    file = _beside(config, name)
    return None if file is None else read_object(file)


def read_list_beside(config: Path, name: str) -> list[Any] | None:
    """Return the JSON list in a file, as :func:`read_beside` returns an object."""
    file = _beside(config, name)
    if file is None:
        return None
    values = _read_json(file)
    if not isinstance(values, list):
        raise ConfigError(f"{file} is not a JSON list but a {type(values).__name__}")
    return values


def has_beside(config: Path, name: str) -> bool:
    """Return whether the folder of the configuration file ``config`` has a file of this name."""
    return config.name in (CONFIG, MISTRAL_CONFIG) and (config.parent / name).exists()


def _beside(config: Path, name: str) -> Path | None:
    file = config.parent / name
    if config.name not in (CONFIG, MISTRAL_CONFIG) or not (file.exists() or file.is_symlink()):
        return None
    if not _is_inside(file):
        raise ConfigError(
            f"{file} links to {file.resolve()}, outside of the model's folder; copy the file into"
            " the folder"
        )
    return file


def _is_inside(file: Path) -> bool:
    """Return whether a file is in its folder, or among the blobs of a snapshot in Hugging Face's
    cache."""
    folder, target = file.parent.resolve(), file.resolve()
    if target.is_relative_to(folder):
        return True
    return folder.parent.name == "snapshots" and target.parent == folder.parent.parent / "blobs"
