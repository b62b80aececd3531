"""Files of gzip members. Whatever happens to the process, flushed data can be read."""

import gzip
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 << 20
"""After a file has reached this size, a new one begins."""

# Higher levels take several times as long for a few percent.
_LEVEL: Final = 1


class GzipFiles:
    """A sequence of files. Each begins with a header."""

    def __init__(
        self, path_of: Callable[[int], Path], header_of: Callable[[int], bytes], max_bytes: int
    ) -> None:
        """Create the first file. ``path_of`` returns the path of a number; a number whose file
        exists is skipped. ``header_of`` returns the header of a part, which is counted from 0.
        Raises :class:`OSError`."""
        self._path_of = path_of
        self._header_of = header_of
        self._max_bytes = max_bytes
        self._number = 0
        self._part = 0
        self._size = 0
        self._earlier: list[tuple[Path, int]] = []
        self._path, self._file = self._open_next()

    @property
    def is_full(self) -> bool:
        """Whether the next member belongs in a new file."""
        return self._size >= self._max_bytes

    @property
    def total_bytes(self) -> int:
        """The size of all remaining files."""
        return self._size + sum(size for _, size in self._earlier)

    @property
    def num_earlier(self) -> int:
        """The number of remaining files without the current one."""
        return len(self._earlier)

    def write(self, data: bytes) -> None:
        """Append whole lines as one member. Raises :class:`OSError`; the file then ends with the
        previous member."""
        if self.is_full:
            self.roll()
        self._append(data)

    def roll(self) -> None:
        """Begin the next file. Raises :class:`OSError`."""
        os.close(self._file)
        self._file = -1
        self._earlier.append((self._path, self._size))
        self._path, self._file = self._open_next()

    def remove_oldest(self) -> None:
        """Delete the oldest file, unless it is the current one. Raises :class:`OSError`."""
        if self._earlier:
            path, _ = self._earlier.pop(0)
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the current file. Nothing more is written."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open_next(self) -> tuple[Path, int]:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        while True:
            path = self._path_of(self._number)
            self._number += 1
            with suppress(FileExistsError):
                self._file = os.open(path, flags, 0o644)
                break
        self._size = 0
        self._append(self._header_of(self._part))
        self._part += 1
        return path, self._file

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
