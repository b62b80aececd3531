"""Tables in columns, Parquet and Arrow, and the sheets of workbooks, as lines."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final

from kvoxide._core import Trace, TraceError
from kvoxide._install_hints import with_extra
from kvoxide.lab.replay.input.trace_file import ContainerError

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS: Final = 1 << 16
# Structs within structs are looked into this deep.
_MAX_DEPTH: Final = 3


def lines_of_columns(file: io.BytesIO, trace: Trace) -> Iterator[bytes]:
    """Return a Parquet or Arrow file as the lines of a table, with the columns that ``trace``
    reads; where these are nested, or the table is of no known format, as JSON lines.

    Raises :class:`ContainerError` if pyarrow is missing or the file is damaged, and
    :class:`TraceError` for columns of no known format.
    """
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise ContainerError(
            f"is a Parquet or Arrow file, which needs pyarrow; {with_extra('tables')}; or export it"
            " as CSV"
        ) from None
    try:
        yield from _lines(_open(file), trace)
    except (pa.ArrowException, OSError) as error:
        raise ContainerError(f"is a damaged Parquet or Arrow file: {error}") from error


def lines_of_workbook(file: IO[bytes] | None, note: Callable[[str], None]) -> Iterator[bytes]:
    """Return the first sheet of an Excel workbook as lines of CSV. Raises
    :class:`ContainerError` if openpyxl is missing or the workbook is damaged."""
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise ContainerError(
            f"is an Excel workbook, which needs openpyxl; {with_extra('tables')}; or export it as"
            " CSV"
        ) from None
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        if len(book.sheetnames) > 1:
            note(f"only the sheet {book.sheetnames[0]!r} of the workbook is read")
        for row in book[book.sheetnames[0]].iter_rows(values_only=True):
            if any(value is not None for value in row):
                yield _csv_line(row)
    except (KeyError, ValueError, OSError) as error:
        raise ContainerError(f"is a damaged Excel workbook: {error}") from error


def _csv_line(values: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(["" if value is None else value for value in values])
    return text.getvalue().encode()


class _Batches:
    """The columns of a file, and batches of some of them."""

    def __init__(
        self, schema: "pa.Schema", read: Callable[[list[str]], Iterator["pa.RecordBatch"]]
    ) -> None:
        self.schema = schema
        self.read = read


def _open(file: io.BytesIO) -> _Batches:
    import pyarrow as pa

    if not file.getvalue().startswith(b"ARROW1"):
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(file)
        return _Batches(
            parquet.schema_arrow,
            lambda columns: parquet.iter_batches(_BATCH_ROWS, columns=columns),
        )
    reader = pa.ipc.open_file(file)
    batches = range(reader.num_record_batches)
    return _Batches(
        reader.schema,
        lambda columns: (reader.get_batch(index).select(columns) for index in batches),
    )


def _lines(batches: _Batches, trace: Trace) -> Iterator[bytes]:
    flat = _flattened(batches.schema.empty_table())
    try:
        columns = trace.read_columns(flat.column_names)
    except TraceError:
        if not any(_is_nested(field.type) for field in flat.schema):
            raise
        yield from _json_lines(batches, batches.schema.names)
        return
    names = [name for name in batches.schema.names if _holds(name, columns)]
    if any(_is_nested(flat.schema.field(name).type) for name in columns):
        yield from _json_lines(batches, names)
        return
    yield _csv_line(columns)
    for batch in batches.read(names):
        yield from _csv_lines(batch, columns)


def _holds(name: str, columns: list[str]) -> bool:
    return any(column == name or column.startswith(f"{name}.") for column in columns)


def _csv_lines(batch: "pa.RecordBatch", columns: list[str]) -> list[bytes]:
    import pyarrow as pa
    from pyarrow.csv import WriteOptions, write_csv

    table = _flattened(pa.Table.from_batches([batch])).select(columns)
    for index, field in enumerate(table.schema):
        table = table.set_column(index, field.name, _as_text(table.column(index)))
    sink = io.BytesIO()
    write_csv(table, sink, WriteOptions(include_header=False))
    return sink.getvalue().splitlines(keepends=True)


def _as_text(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """The column in a type that CSV has: lists become texts with spaces."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if _is_list(kind):
        texts = pc.cast(column, pa.list_(pa.string()))
        return pc.binary_join(texts, " ")
    if pa.types.is_decimal(kind) or pa.types.is_duration(kind):
        return pc.cast(column, pa.float64() if pa.types.is_decimal(kind) else pa.int64())
    return column


def _flattened(table: "pa.Table") -> "pa.Table":
    """The table with a column for each field of its structs."""
    for _ in range(_MAX_DEPTH):
        table = table.flatten()
    return table


def _is_nested(kind: "pa.DataType") -> bool:
    """Return whether values have parts that are not plain values themselves."""
    import pyarrow as pa

    return bool(pa.types.is_nested(kind.value_type if _is_list(kind) else kind))


def _is_list(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    is_of = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_one(kind) for is_one in is_of)


def _json_lines(batches: _Batches, names: list[str]) -> Iterator[bytes]:
    for batch in batches.read(names):
        for row in batch.to_pylist():
            yield json.dumps(row, default=str).encode()
