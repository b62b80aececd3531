"""Result files: found unwritable before the run, written whole or not at all."""

import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kvoxide._core import KvoxideError


class OutputError(KvoxideError):
    """A result file that cannot be written; the message names it."""


def check_writable(path: Path) -> None:
    """Raise :class:`OutputError` if a later :func:`replacing` of ``path`` would probably fail.
    Leaves no file."""
    try:
        if not _is_stream(path):
            _create_temporary(path).close()
            _temporary_path(path).unlink()
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(None, "the file is write-protected")
    except OSError as error:
        raise _output_error(path, error) from error


def check_distinct(source: str, paths: Sequence[Path | None]) -> None:
    """Raise :class:`OutputError` if two result files, or one and the trace, are the same file."""
    seen = {Path(source).resolve()} if os.path.isfile(source) else set()
    for path in paths:
        if path is None or _is_stream(path):
            continue
        if path.resolve() in seen:
            raise OutputError(
                f"{str(path)!r} is named for two results, or is the trace; name another file"
            )
        seen.add(path.resolve())


def json_document(record: dict[str, Any]) -> bytes:
    """Return a JSON file's content."""
    return json.dumps(record, allow_nan=False).encode() + b"\n"


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary stream whose bytes become the file ``path`` when the block ends without an error.

    Until then an older file stays as it is. A path that is no regular file (``/dev/stdout``) is
    written directly. Raises :class:`OutputError`.
    """
    try:
        if _is_stream(path):
            with path.open("wb") as stream:
                yield stream
        else:
            yield from _replace(path)
    except OSError as error:
        raise _output_error(path, error) from error


def _replace(path: Path) -> Iterator[IO[bytes]]:
    temporary = _temporary_path(path)
    try:
        with _create_temporary(path) as stream:
            yield stream
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path.resolve())
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _create_temporary(path: Path) -> IO[bytes]:
    return _temporary_path(path).open("wb")


def _temporary_path(path: Path) -> Path:
    """Return the path of incomplete content, in the same folder so that a rename works."""
    return path.resolve().parent / f".{path.name[:60]}.{os.getpid()}.tmp"


def _is_stream(path: Path) -> bool:
    """Whether the path exists and is neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(None, "it is a folder")
    return not stat.S_ISREG(mode)


def _output_error(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {str(path)!r}: {error.strerror or error}")
