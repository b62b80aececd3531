"""Finds the code of a release that kvoxide re-implements or relies on and that changed."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvoxide.vllm.environment.definitions import Parts, parts_of
from kvoxide.vllm.environment.tracked_code import (
    CONNECTOR_CODE,
    MANAGER_CODE,
    PRIMARY_TIER_CODE,
    SCHEDULERS,
    TrackedNames,
)

from .sources import source_of

AREAS: Final[Mapping[str, Mapping[str, TrackedNames]]] = {
    "manager": MANAGER_CODE,
    "host tier": PRIMARY_TIER_CODE,
    "offloading connector": CONNECTOR_CODE,
}

PLACES: Final = {
    "v1/core/kv_cache_manager.py": "rust/core/src/manager, python/kvoxide/vllm/adapter/manager.py",
    "v1/core/kv_cache_coordinator.py": "rust/core/src/{manager,lookup}, adapter/coordinator.py",
    "v1/core/single_type_kv_cache_manager.py": "rust/core/src/group, rust/core/src/retention",
    "v1/core/block_pool.py": "rust/core/src/pool, adapter/pool.py",
    "v1/core/kv_cache_utils.py": "rust/core/src/block_hash, rust/python/src/vllm/hasher.rs",
    "v1/kv_cache_interface.py": "adapter/support.py, rust/core/src/group/kinds",
    "v1/request.py": "rust/python/src/vllm/request.rs",
    "distributed/kv_events.py": "adapter/events.py",
    "v1/kv_offload/tiering/manager.py": "offload/primary.py",
}
"""Where kvoxide does what a file of vLLM does."""

_CALLED: Final = re.compile(r"\bkv_cache_manager\.(\w+)")


@dataclass(frozen=True)
class Change:
    """A part of vLLM's code that two releases do not have in common."""

    area: str
    path: str
    key: str
    before: str
    after: str

    @property
    def title(self) -> str:
        """Return the part and the kind of change."""
        happened = "is gone" if not self.after else "has changed" if self.before else "is new"
        return f"{self.path}: {self.key} {happened}"

    def diff(self) -> str:
        """Return a unified diff, without its header."""
        before, after = (text.splitlines() for text in (self.before, self.after))
        lines = list(difflib.unified_diff(before, after, lineterm="", n=3))
        return "\n".join(lines[2:])


def changes_between(old: Path, new: Path) -> list[Change]:
    """Return the changes of two folders of the package vllm, each in the first area that has it."""
    found: dict[tuple[str, str], Change] = {}
    for area, relevant in AREAS.items():
        for path, names in relevant.items():
            for change in _in_file(area, path, names, old, new):
                found.setdefault((path, change.key), change)
    return list(found.values())


def _in_file(area: str, path: str, names: TrackedNames, old: Path, new: Path) -> Iterator[Change]:
    texts = [_text(folder / path) for folder in (old, new)]
    if texts[0] == texts[1]:
        return
    before, after = (_parts(text, names) for text in texts)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key):
            continue
        ends = [
            source_of(text, key) or parts.get(key, "")
            for text, parts in zip(texts, (before, after), strict=True)
        ]
        if key.startswith("import ") and not all((before.get(key), after.get(key))):
            continue  # The code that uses the name shows it.
        yield Change(
            area,
            path,
            key,
            *(
                end if key in parts else ""
                for end, parts in zip(ends, (before, after), strict=True)
            ),
        )


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _parts(text: str, names: TrackedNames) -> Parts:
    return parts_of(text.encode(), names)


def calls_of_schedulers(package: Path) -> set[str]:
    """Return what vLLM's own schedulers use of their manager, by name."""
    texts = (_text(package / path) for path in SCHEDULERS)
    return {name for text in texts for name in _CALLED.findall(text)}


def files_that_differ(one: Path, other: Path) -> list[str]:
    """Return the relevant files that two packages of the same release do not have in common."""
    paths = {path for relevant in AREAS.values() for path in relevant} | set(SCHEDULERS)
    return sorted(path for path in paths if _text(one / path) != _text(other / path))
