"""The pooling of a folder of Sentence Transformers, as vLLM reads it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.folder import CONFIG, read_beside, read_list_beside

# Sentence Transformers writes this file.
MODULES: Final = "modules.json"
_TYPES: Final = (
    "sentence_transformers.models.Pooling",
    "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
)
_PREFIX: Final = "pooling_mode_"
# With these vLLM switches prefix caching off by default.
_WITHOUT_REUSE: Final = ("CLS", "MEAN", "STEP")


@dataclass(frozen=True)
class Pooling:
    """The pooling of a folder: the names of its ``kinds``, and the ``file`` that says so."""

    kinds: tuple[str, ...]
    file: str

    @property
    def reuses_prefixes(self) -> bool:
        """Whether vLLM caches prefixes with this pooling by default."""
        return not any(kind in _WITHOUT_REUSE for kind in self.kinds)


def pooling_of(config: Path) -> Pooling | None:
    """Return the pooling of the folder whose configuration is ``config``; None where it has none.

    Raises :class:`~kvoxide.ConfigError` for files that cannot be read.
    """
    path = _pooling_path(config)
    if path is None:
        return None
    name = f"{path}/{CONFIG}"
    return Pooling(tuple(_kinds(read_beside(config, name) or {})), name)


def pooling_files(config: Path) -> dict[str, bytes]:
    """Return the files that say the pooling of the folder, by their names there."""
    path = _pooling_path(config)
    names = [] if path is None else [MODULES, f"{path}/{CONFIG}"]
    found = ((name, config.parent / name) for name in names)
    return {name: file.read_bytes() for name, file in found if file.is_file()}


def _pooling_path(config: Path) -> str | None:
    """Return the folder of the module that pools, in the model's folder."""
    modules = read_list_beside(config, MODULES)
    if modules is None:
        return None
    paths = (
        module.get("path")
        for module in modules
        if isinstance(module, Mapping) and module.get("type") in _TYPES
    )
    path = next(paths, None)
    if path is None:
        return None
    if not isinstance(path, str) or {"..", "/"} & set(PurePosixPath(path).parts):
        file = config.parent / MODULES
        raise ConfigError(
            f"{file}: path of the pooling is {path!r}; expected a folder inside the model's folder"
        )
    return path


def _kinds(fields: Mapping[str, Any]) -> Iterator[str]:
    """Return the kinds that a pooling's configuration names."""
    for name, value in fields.items():
        if name == "pooling_mode" and isinstance(value, str):
            named = value
        elif value is True:
            named = name
        else:
            continue
        named = named.replace(_PREFIX, "").split("_", 1)[0]
        yield "LAST" if "lasttoken" in named else named.upper()
