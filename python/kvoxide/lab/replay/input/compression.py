"""Plain bytes from a plain, gzip, zstd, xz or bzip2 stream, recognised by its first bytes."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Final, Protocol

from kvoxide._install_hints import with_extra

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# pzstd starts a file with a skippable frame, which has one of sixteen magic numbers.
_ZSTD_MAGICS: Final = frozenset(
    {_ZSTD_MAGIC, *(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))}
)
_XZ_MAGIC: Final = b"\xfd7zX"
_BZIP2_MAGIC: Final = b"BZh"
_CHUNK_BYTES: Final = 1 << 16


class CompressedStreamError(Exception):
    """A compressed stream is damaged, ends too early, or needs a package that is missing."""


class CutOffError(CompressedStreamError):
    """A compressed stream ends too early."""


def decompressed(source: IO[bytes]) -> io.BufferedReader:
    """A reader of the plain bytes of ``source``, which need not be able to seek.

    Raises :class:`CompressedStreamError` if zstandard is missing. Reading raises it when the
    compressed stream is damaged or cut off. Closing the reader leaves ``source`` open.
    """
    head = read_fully(source, 4)
    plain = Rejoined(head, source)
    if head.startswith(_GZIP_MAGIC):
        return io.BufferedReader(_Frames(plain, "gzip", _gzip_frame, zlib.error))
    if head in _ZSTD_MAGICS:
        return _zstd_reader(plain)
    if head.startswith(_XZ_MAGIC):
        return io.BufferedReader(_Frames(plain, "xz", lzma.LZMADecompressor, lzma.LZMAError))
    if head.startswith(_BZIP2_MAGIC):
        return io.BufferedReader(_Frames(plain, "bzip2", bz2.BZ2Decompressor, OSError))
    return io.BufferedReader(plain)


def _zstd_reader(plain: "Rejoined") -> io.BufferedReader:
    try:
        from zstandard import ZstdDecompressor, ZstdError
    except ModuleNotFoundError:
        raise CompressedStreamError(
            f"it is a zstd stream, which needs zstandard; {with_extra('cli')}"
        ) from None
    return io.BufferedReader(
        _Frames(plain, "zstd", lambda: ZstdDecompressor().decompressobj(), ZstdError)
    )


class _Frame(Protocol):
    """One gzip member or zstd frame being decompressed."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip_frame() -> _Frame:
    return zlib.decompressobj(wbits=31)


def read_fully(source: IO[bytes], size: int) -> bytes:
    """Read ``size`` bytes, or fewer at the end of the stream."""
    data = b""
    while len(data) < size and (more := source.read(size - len(data))):
        data += more
    return data


class Rejoined(io.RawIOBase):
    """The bytes already taken from a stream, then the rest of it."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        """``head`` has been read from ``rest``."""
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill a buffer with the next bytes, and return how many."""
        view = memoryview(buffer).cast("B")
        data = self._head[: len(view)] or self._rest.read(len(view))
        self._head = self._head[len(data) :]
        view[: len(data)] = data
        return len(data)


class _Frames(io.RawIOBase):
    """The decompressed bytes of frames that follow each other."""

    def __init__(
        self,
        source: io.RawIOBase,
        name: str,
        new_frame: Callable[[], _Frame],
        error: type[Exception],
    ) -> None:
        self._source = source
        self._name = name
        self._new_frame = new_frame
        self._error = error
        self._frame = new_frame()
        self._compressed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._plain:
            if not self._fill():
                return 0
        size = min(len(view), len(self._plain))
        view[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size

    def _fill(self) -> bool:
        """Decompress one more chunk; false at the end of the last frame."""
        if not self._compressed:
            self._compressed = self._source.read(_CHUNK_BYTES) or b""
        if not self._compressed:
            if not self._frame.eof:
                raise CutOffError(f"the {self._name} stream ends too early")
            return False
        if self._frame.eof:
            self._frame = self._new_frame()
        try:
            self._plain = memoryview(self._frame.decompress(self._compressed))
        except self._error as error:
            raise CompressedStreamError(f"the {self._name} stream is damaged: {error}") from error
        self._compressed = self._frame.unused_data if self._frame.eof else b""
        return True
