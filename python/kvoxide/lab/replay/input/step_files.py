"""Steps that an engine took, from files."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvoxide._core import ConfigError
from kvoxide.lab.replay.input.compression import CompressedStreamError, CutOffError, decompressed
from kvoxide.recording_format import FORMAT_FIELD, STEPS, pattern

# As a server records them.
_FILES: Final = pattern(STEPS)
_COLUMNS: Final = ("duration", "prefill_tokens", "context_tokens", "running")


def read_steps(path: Path, names: str = _FILES) -> NDArray[np.float64]:
    """The steps of a file of JSON lines, or of all files of a folder that have these names.

    Shape (steps, 4): duration in seconds; prefilled tokens, tokens of context, requests. A line is
    what a server records (durations in milliseconds) or has the names ``duration`` (seconds),
    ``prefill_tokens``, ``context_tokens`` and ``running``. Headers of recordings are passed over,
    and what was cut off at a file's end. Raises :class:`~kvoxide._core.ConfigError` that names
    file, line and field.
    """
    files = sorted(path.glob(names)) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"the folder {str(path)!r} has no files {names}")
    return np.concatenate([_steps_of(file) for file in files])


def _steps_of(path: Path) -> NDArray[np.float64]:
    try:
        state = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return _read_once(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1024)
def _read_once(path: Path, _size: int, _changed: int) -> NDArray[np.float64]:
    """Read a file. A fit and a replay of the recorded steps both need it."""
    return np.array(list(_rows(path)), float).reshape(-1, 4)


def _rows(path: Path) -> Iterator[tuple[float, ...]]:
    try:
        with path.open("rb") as source:
            for number, line in enumerate(decompressed(source), start=1):
                if line.isspace():
                    continue
                try:
                    record = json.loads(line)
                    if not (isinstance(record, dict) and FORMAT_FIELD in record):
                        yield _row(record)
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return
                    where = f"{path.name}, line {number}"
                    raise ConfigError(f"{where}: {error}; {_EXPECTED}") from error
    except CutOffError:
        return
    except (OSError, CompressedStreamError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from error


_EXPECTED: Final = f"expected a recorded step, or an object with the numbers {', '.join(_COLUMNS)}"


def _row(record: Any) -> tuple[float, ...]:  # noqa: ANN401
    if not isinstance(record, dict):
        raise ValueError("is not a JSON object")
    if "decode_context_tokens" in record:
        return (
            _number(record, "duration") / 1e3,
            _number(record, "prefill_tokens"),
            _number(record, "prefill_context_tokens") + _number(record, "decode_context_tokens"),
            _number(record, "prefill_requests") + _number(record, "decode_requests"),
        )
    return tuple(_number(record, name) for name in _COLUMNS)


def _number(record: dict[str, Any], name: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError(f"field {name!r} is {value}")
    if name == "duration" and value == 0:
        raise ValueError("field 'duration' is 0")
    return float(value)
