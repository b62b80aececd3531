"""Stores answers of vLLM, one file each, in the user's cache folder."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

# The format of questions and answers. A reader ignores other formats.
_FORMAT: Final = 3


def key_of(files: Mapping[str, bytes], gpu: str, options: Mapping[str, Any]) -> str:
    """Return a key of everything that an answer depends on: the content of the model's files, the
    GPU, the server's options, and the installed vLLM."""
    contents = {name: sha256(content).hexdigest() for name, content in files.items()}
    parts = [_FORMAT, contents, gpu, dict(options), _vllm()]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read(key: str) -> dict[str, Any] | None:
    """Return the stored answer, or None if there is none that can be read."""
    try:
        answer = json.loads(_file(key).read_bytes())
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def write(key: str, answer: Mapping[str, Any]) -> None:
    """Store an answer, if that is possible."""
    with suppress(OSError):
        folder = _file(key).parent
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(answer, file)
        os.replace(file.name, _file(key))


def _file(key: str) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(root) / "kvoxide" / "answers" / f"{key}.json"


def _vllm() -> list[str]:
    """Return where vLLM is installed, and the text that has its version."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        return []
    version = Path(spec.origin).with_name("_version.py")
    return [spec.origin, version.read_text() if version.is_file() else ""]
