"""The source files of the vLLM that is installed."""

import importlib.util
import sys
from pathlib import Path
from typing import Final

_NOT_SOURCES: Final = (".pyc", ".pyd", ".so")


class UnreadableSourcesError(RuntimeError):
    """There is no vLLM here, or none whose sources can be read; says which and what to do."""


def package_folder() -> Path:
    """Returns the folder of the package ``vllm``, without importing it.

    Raises :class:`UnreadableSourcesError` if there is none.
    """
    try:
        spec = importlib.util.find_spec("vllm")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UnreadableSourcesError("vLLM is not installed here")
    return Path(next(iter(spec.submodule_search_locations)))


def module_name(path: str) -> str:
    """Returns the module of a file, by its path below the package ``vllm``."""
    return "vllm." + path.removesuffix(".py").replace("/", ".")


def origin_of(path: str, folder: Path) -> str:
    """Returns where the code of a file comes from: what was imported, else what would be."""
    spec = getattr(sys.modules.get(module_name(path)), "__spec__", None)
    return getattr(spec, "origin", None) or str(folder / path)


def read_source(origin: str) -> bytes | None:
    """Returns the bytes of a source file; None if there is no such module.

    Raises :class:`UnreadableSourcesError` if there is one without a readable source.
    """
    path = Path(origin)
    if path.suffix in _NOT_SOURCES:
        raise _unreadable(origin, "it is compiled")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise _unreadable(origin, "it is in an archive") from None
    except OSError as error:
        raise _unreadable(origin, error.strerror or str(error)) from None
    for other in path.parent.glob(f"{path.stem}.*"):
        if other.suffix in _NOT_SOURCES:
            raise _unreadable(str(other), "it is compiled")
    return None


def _unreadable(origin: str, why: str) -> UnreadableSourcesError:
    return UnreadableSourcesError(
        f"kvoxide cannot check this vLLM, because its source {origin} cannot be read: {why}; "
        "install vLLM as a package with its .py files"
    )
