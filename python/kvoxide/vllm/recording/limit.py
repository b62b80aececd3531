"""Limits the size of a recording by deleting the oldest files."""

import shutil
from pathlib import Path
from typing import Final

from kvoxide.vllm.recording.files import MAX_BYTES, GzipFiles

# Whole files are deleted, so each is small compared with the limit.
_MIN_FILES: Final = 16
_MIN_FILE_BYTES: Final = 64 << 10


DEFAULT_LIMIT: Final = 16 << 30
"""The limit if none is set, unless the disk has too little room for it."""


def default_limit(folder: Path) -> int:
    """Return :data:`DEFAULT_LIMIT`, or half of the disk's free space if that is less."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return DEFAULT_LIMIT
    return min(DEFAULT_LIMIT, max(free // 2, _MIN_FILE_BYTES))


def file_bytes(limit: int | None) -> int:
    """Return the size after which a new file begins."""
    if limit is None:
        return MAX_BYTES
    return min(MAX_BYTES, max(limit // _MIN_FILES, _MIN_FILE_BYTES))


class SizeLimit:
    """The most bytes that the files of one scheduler take together."""

    def __init__(self, limit: int | None) -> None:
        """Set the limit; None means no limit."""
        self._limit = limit
        self.num_removed = 0

    def apply(self, *kinds: GzipFiles) -> bool:
        """Delete the oldest files above the limit. Return whether these are the first ones deleted.

        Raises :class:`OSError`.
        """
        before = self.num_removed
        while self._limit is not None and sum(f.total_bytes for f in kinds) > self._limit:
            largest = max(kinds, key=lambda files: (files.num_earlier > 0, files.total_bytes))
            if not largest.num_earlier:
                break
            largest.remove_oldest()
            self.num_removed += 1
        return before == 0 < self.num_removed
