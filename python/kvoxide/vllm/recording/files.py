"""Files of gzip members: whatever happens to the process, what was flushed can be read."""

import gzip
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 << 20
"""A file that is larger is not written on."""

# Higher levels take several times as long for a few percent.
_LEVEL: Final = 1


class GzipFiles:
    """Files that follow each other, each of which begins with the same header."""

    def __init__(self, path_of: Callable[[int], Path], header: bytes, max_bytes: int) -> None:
        """Create the first file: ``path_of`` its number, or the next number that is free. Raises
        :class:`OSError`."""
        self._path_of = path_of
        self._header = header
        self._max_bytes = max_bytes
        self._number = 0
        self._size = 0
        self._file = self._open_next()

    def write(self, data: bytes) -> None:
        """Append whole lines as one member. Raises :class:`OSError`; the file then ends with the
        member before."""
        if self._size >= self._max_bytes:
            os.close(self._file)
            self._file = -1
            self._file = self._open_next()
        self._append(data)

    def close(self) -> None:
        """No more is written."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open_next(self) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        while True:
            path = self._path_of(self._number)
            self._number += 1
            with suppress(FileExistsError):
                self._file = os.open(path, flags, 0o644)
                break
        self._size = 0
        self._append(self._header)
        return self._file

    def _append(self, data: bytes) -> None:
        member = gzip.compress(data, _LEVEL, mtime=0)
        rest = memoryview(member)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(member)
