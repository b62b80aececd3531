"""Reads a file of ``KVOXIDE=shadow``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvoxide.vllm.shadow.description import Json
from kvoxide.vllm.shadow.recorder import FORMAT

DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError)
"""The exceptions of reading a file that is not a recording, or is damaged."""

# A file may name no other attribute.
_ROLES: Final = ("manager", "block_pool", "coordinator")


class RecordingError(ValueError):
    """The file is not a recording, is damaged, or cannot be played from its start."""


@dataclass(frozen=True)
class Recording:
    """A file of ``KVOXIDE=shadow``."""

    configuration: Mapping[str, Json]
    calls: list[Json]
    difference: Json
    dropped_calls: int

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read a file. Raises :class:`RecordingError`, and :class:`OSError` if there is no file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise RecordingError(
                    f"{path} has format {content['format']}; this kvoxide reads format {FORMAT}"
                )
            recording = cls(**{name: content[name] for name in cls.__dataclass_fields__})
            recording._check()
        except RecordingError:
            raise
        except DAMAGE as error:
            raise RecordingError(
                f"{path} is not a file of KVOXIDE=shadow, or is damaged: {error!r}"
            ) from None
        return recording

    def _check(self) -> None:
        """Raise one of :data:`DAMAGE` unless all parts exist that readers need."""
        for name in ("kvoxide", "vllm", "num_blocks", "groups", "arguments"):
            self.configuration[name]
        len(self.configuration["groups"])
        for name in ("what", "call", "vllm", "kvoxide"):
            self.difference[name]
        for call in self.calls:
            role, _, name = call["call"].partition(".")
            if role not in _ROLES or not name.isidentifier() or name.startswith("_"):
                raise RecordingError(f"{call['call']!r} is not a scheduler's or connector's call")
            call["arguments"].items()
            call["outcome"]
        int(self.dropped_calls)
