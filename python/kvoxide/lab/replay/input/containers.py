"""Read the lines of a trace out of UTF-16, a zip archive, Parquet or a spreadsheet."""

import codecs
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Final

from kvoxide._core import Trace
from kvoxide.lab.replay.input.compression import Rejoined, decompressed, read_fully
from kvoxide.lab.replay.input.trace_file import ContainerError

# A part of a file that tells what it is: tar has its magic at byte 257.
_NUM_HEAD: Final = 512
_TAR: Final = slice(257, 262)
# Byte order marks. UTF-32 comes first, because its mark begins with the mark of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TABLE: Final = "export it as CSV or Parquet"
_UNPACK: Final = "unpack it first"
_RECORD: Final = "record the server with KVOXIDE_RECORD"
# Kinds of files that are not read: their first bytes, their names and what helps.
_OTHERS: Final = (
    (b"SQLite format 3\x00", "an SQLite database", _TABLE),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook (.xls)", _TABLE),
    (b"Obj\x01", "an Avro file", _TABLE),
    (b"ORC", "an ORC file", _TABLE),
    (b"\x89HDF", "an HDF5 file", _TABLE),
    (b"\x93NUMPY", "a NumPy array", _TABLE),
    (b"\x80\x04\x95", "a Python pickle", _TABLE),
    (b"\x80\x05\x95", "a Python pickle", _TABLE),
    (b"%PDF", "a PDF document", _TABLE),
    (b"GGUF", "the weights of a model (GGUF)", "give a trace of requests"),
    (b"7z\xbc\xaf", "a 7z archive", _UNPACK),
    (b"Rar!", "a RAR archive", _UNPACK),
    (b"\x04\x22\x4d\x18", "an LZ4 file", _UNPACK),
    (b"version https://git-lfs", "a pointer of Git LFS", "get the file itself with git lfs pull"),
    (b"<!DOCTYPE", "a web page", "check the address that it was downloaded from"),
    (b"<!doctype", "a web page", "check the address that it was downloaded from"),
    (b"<html", "a web page", "check the address that it was downloaded from"),
    (b"<?xml", "an XML file", _TABLE),
    (b"# HELP ", "a page of Prometheus metrics, which are sums over all requests", _RECORD),
)
_IGNORED: Final = ("__MACOSX/",)
_ENDINGS: Final = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt", ".parquet", ".arrow")
_COMPRESSED: Final = (".gz", ".zst", ".xz", ".bz2")
_MAX_NAMED: Final = 8


def lines_of(source: IO[bytes], trace: Trace, note: Callable[[str], None]) -> Iterable[bytes]:
    """Return the lines of a stream of plain bytes, whatever holds them; ``trace`` says which
    columns of a table it reads.

    Raises :class:`ContainerError`, here or while the lines are read.
    """
    head = read_fully(source, _NUM_HEAD)
    stream = io.BufferedReader(Rejoined(head, source))
    if head.startswith(b"PK\x03\x04"):
        return _lines_of_zip(stream, trace, note)
    if head.startswith(b"PK\x05\x06"):
        raise ContainerError("is a zip archive without files")
    if head.startswith((b"PAR1", b"ARROW1")):
        from kvoxide.lab.replay.input.columnar import lines_of_columns

        return lines_of_columns(io.BytesIO(stream.read()), trace)
    if encoding := _encoding(head):
        return _decoded(stream, encoding)
    _check_text(head)
    return stream


def _check_text(head: bytes) -> None:
    if head[_TAR] == b"ustar":
        raise ContainerError(f"is a tar archive; {_UNPACK}")
    for magic, what, advice in _OTHERS:
        if head.startswith(magic):
            raise ContainerError(f"is {what}; {advice}")
    if b"\x00" in head:
        raise ContainerError(f"is binary data of an unknown kind; {_TABLE}, or as JSON lines")
    if head.count(b"\r") > 1 and b"\n" not in head:
        raise ContainerError(r"has lines that end only with CR; convert them: tr '\r' '\n'")


def _encoding(head: bytes) -> str | None:
    """The encoding of text that is not UTF-8, by its mark or by where its zeros are."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    even, odd = head[0:64:2], head[1:64:2]
    if len(odd) > 1 and b"\x00" not in even and not any(odd):
        return "utf-16-le"
    if len(odd) > 1 and b"\x00" not in odd and not any(even):
        return "utf-16-be"
    return None


def _decoded(stream: IO[bytes], encoding: str) -> Iterator[bytes]:
    try:
        for line in io.TextIOWrapper(stream, encoding):
            yield line.encode()
    except UnicodeError as error:
        raise ContainerError(f"is damaged text in {encoding}: {error}") from error


def _lines_of_zip(stream: IO[bytes], trace: Trace, note: Callable[[str], None]) -> Iterable[bytes]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(stream.read()))
    except zipfile.BadZipFile as error:
        raise ContainerError(f"is a damaged zip archive: {error}") from error
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    if "xl/workbook.xml" in names:
        from kvoxide.lab.replay.input.columnar import lines_of_workbook

        return lines_of_workbook(archive.fp, note)
    if "content.xml" in names or "word/document.xml" in names:
        raise ContainerError(f"is an office document; {_TABLE}")
    name = _only_trace(names)
    try:
        inner = archive.open(name)
    except (RuntimeError, NotImplementedError) as error:
        raise ContainerError(f"is a zip archive that cannot be unpacked: {error}") from error
    if len(names) > 1:
        note(f"only {name} of the zip archive is read")
    return lines_of(decompressed(inner), trace, note)


def _only_trace(names: list[str]) -> str:
    """The one name that may be a trace. Raises :class:`ContainerError` for none or several."""
    files = [name for name in names if not (name.startswith(_IGNORED) or _base(name)[0] == ".")]
    likely = [name for name in files if _ending(name) in _ENDINGS and _ending(name) != ".txt"]
    found = files if len(files) == 1 else likely
    if len(found) == 1:
        return found[0]
    if not files:
        raise ContainerError("is a zip archive without files")
    shown = ", ".join(files[:_MAX_NAMED]) + (" and more" if len(files) > _MAX_NAMED else "")
    raise ContainerError(
        f"is a zip archive with several files: {shown}; unpack it and name one of them"
    )


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1] or "."


def _ending(name: str) -> str:
    base = _base(name).lower()
    for ending in _COMPRESSED:
        base = base.removesuffix(ending)
    return base[base.rfind(".") :] if "." in base else ""
