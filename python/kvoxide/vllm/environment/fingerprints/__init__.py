"""The code of the known releases of vLLM: ``vllm-VERSION.json`` holds, for each relevant file, the
SHA-256 of its bytes and the text of each part (:mod:`kvoxide.vllm.environment.definitions`).

``python -m kvoxide.vllm.environment --print`` prints the file of the vLLM that is installed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvoxide.vllm.environment.definitions import Parts


@dataclass(frozen=True)
class FileCode:
    """The code of one file."""

    sha256: str
    parts: Parts


@cache
def load(version: str) -> dict[str, FileCode]:
    """Returns the code of a known release by path below the package ``vllm``.
    Callers must not change it."""
    text = Path(__file__).with_name(f"vllm-{version}.json").read_text(encoding="utf-8")
    return {path: FileCode(**code) for path, code in json.loads(text).items()}


def dump(files: Mapping[str, FileCode]) -> str:
    """Returns the text that :func:`load` reads, one part per line."""
    plain = {path: {"sha256": code.sha256, "parts": code.parts} for path, code in files.items()}
    return json.dumps(plain, indent=1, sort_keys=True) + "\n"
