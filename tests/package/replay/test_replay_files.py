"""Files as people have them: logs, reports, tables and archives; each read, or refused in words."""

import csv
import datetime
import io
import json
import lzma
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvoxide import KVCacheGroupSpec, Serving, Simulation, Trace
from kvoxide._install_hints import with_extra
from kvoxide.lab.replay.input import read_trace
from kvoxide.lab.replay.input.trace_file import TraceFileError

from tests.testing.traces import succeed, write_trace

EXAMPLES = {
    name: (example, is_played) for name, _, _, example, is_played in Trace.describe_formats()
}
ROW = {"timestamp": 0, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, 3]}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def read(tmp_path: Path, content: bytes, **options: Any) -> Any:
    return read_trace(write_trace(tmp_path / "trace", content), **options)


def refusal(tmp_path: Path, content: bytes, **options: Any) -> str:
    with pytest.raises(TraceFileError) as refused:
        read(tmp_path, content, **options)
    return str(refused.value)


def timed(trace: Trace) -> Any:
    groups = [KVCacheGroupSpec("full_attention", 16)]
    return Simulation(trace, groups, 10_000, serving=Serving(speed=1.0)).run()


def seconds(trace: Trace) -> list[float]:
    return [round(float(moment), 3) for moment in timed(trace).serving.moments[:, 0]]


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_format_reads_its_example(tmp_path: Path, name: str) -> None:
    example, is_played = EXAMPLES[name]
    given = {"format": name} if name in ("recording", "vllm bench") else {}
    if not is_played:
        assert f"format {name}" in refusal(tmp_path, example.encode())
        return
    file = read(tmp_path, example.encode(), **given)
    assert file.trace.format == name
    assert len(file.trace) > 0
    assert read(tmp_path, example.encode(), format=name).trace.format == name


def test_formats_are_listed_with_examples() -> None:
    output = succeed("formats").output
    for name, (example, _) in EXAMPLES.items():
        assert f"{name}: " in output
        assert example.splitlines()[0] in output
    assert succeed("formats", "azure").output == EXAMPLES["azure"][0]


@pytest.mark.parametrize(
    "more",
    [
        {"chat_id": "c"},
        {"request_id": "r"},
        {"model": "m", "user": "u", "requests": 3},
        {"type": "text", "prompt": "hello"},
        {"event": "x", "schema": "mine", "tools": []},
        {"event_type": "chat", "dependencies": ["a"]},
        {"startTime": "x", "spend": 0.1, "prompt_tokens": 5},
        {"chat_id": "c", "turn": 1},
        {"traceId": "t", "attributes": {}, "usage": {"input_tokens": 1}},
        {"messages": [{"role": "user"}], "conversation_id": 4},
    ],
)
def test_a_mooncake_line_with_more_fields_is_mooncakes(tmp_path: Path, more: Any) -> None:
    rows = [{**ROW, "timestamp": 5000 * number, **more} for number in range(2)]
    trace = read(tmp_path, lines(*({**row, "request_id": n} for n, row in enumerate(rows)))).trace
    assert (trace.format, trace.tokens_per_id) == ("mooncake", 512)
    assert seconds(trace) == [0.0, 5.0]


def test_runs_of_a_benchmark_follow_each_other(tmp_path: Path) -> None:
    def run(start: float, **more: object) -> dict[str, Any]:
        starts = [start, start + 10, start + 20]
        lengths = {"input_lens": [1000] * 3, "output_lens": [5] * 3, "start_times": starts}
        return {"backend": "vllm", "request_throughput": 1.0, **lengths, **more}

    failed = {"output_lens": [5, 0, 5], "errors": ["", "TimeoutError", ""]}
    file = read(tmp_path, lines(run(100.0), run(5.0, **failed)))
    first, second = seconds(file.trace)[:3], seconds(file.trace)[3:]
    assert first == [0.0, 10.0, 20.0]
    assert second[0] > 20.0
    assert second[1] - second[0] == pytest.approx(20.0)
    assert timed(file.trace).serving.total.makespan_seconds == pytest.approx(40.1, abs=0.1)
    assert "left out: 1 requests that failed" in file.notes
    assert any("several runs" in note for note in file.notes)
    assert len(read(tmp_path, lines(run(100.0), run(5.0)), limit=2).trace) == 2
    alone = read(tmp_path, lines(run(100.0, errors=["", None, ""])))
    assert (len(alone.trace), len(alone.notes)) == (3, 1)
    wrong = refusal(tmp_path, lines(run(1.0, errors=[""])))
    assert "field 'errors' has 1 values, but input_lens has 3" in wrong


def test_failed_rows_of_burstgpt_are_left_out(tmp_path: Path) -> None:
    head = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    file = read(tmp_path, head + b"5,m,472,18,490,chat\n45,m,1087,0,1087,chat\n50,m,9,3,12,api\n")
    assert len(file.trace) == 2
    assert seconds(file.trace) == [0.0, 45.0]
    assert "left out: 1 requests that failed, without output tokens" in file.notes


def test_prefixes_of_tracelab_come_back(tmp_path: Path) -> None:
    def at(minute: int, total: int, prefix: int, session: str = "s") -> dict[str, Any]:
        event = {"event_type": "user_message", "timestamp": f"2026-06-01T10:{minute:02}:00Z"}
        lengths = {"input_tokens_total": total, "prefix_tokens": prefix, "output_tokens": 96}
        new = {"newly_append_tokens": total - prefix, "tools": [], "timing_events": [event]}
        return {"provider": "c", "session_id": session, **lengths, **new}

    rows = lines(at(0, 1600, 0), at(1, 1600, 0, "t"), at(2, 2400, 1600), at(3, 3200, 2000))
    file = read(tmp_path, rows)
    result = timed(file.trace)
    assert result.hit_tokens == 1600 + 2000 // 16 * 16
    assert seconds(file.trace) == [0.0, 60.0, 120.0, 180.0]
    cached = read(tmp_path, lines(at(0, 1600, 1500)))
    assert any("cached tokens" in note for note in cached.notes)
    assert timed(cached.trace).hit_tokens == 0
    no_prefix = {key: value for key, value in at(2, 2400, 1600).items() if key != "prefix_tokens"}
    assert timed(read(tmp_path, lines(at(0, 1600, 0), no_prefix)).trace).hit_tokens == 1600


def test_answers_of_claude_code_come_back(tmp_path: Path) -> None:
    example = EXAMPLES["claude code"][0]
    again = example.splitlines()[2]
    file = read(tmp_path, f"{example}{again}\n".encode())
    assert seconds(file.trace) == [0.0, 6.0]
    assert file.trace.num_prompt_tokens == 1005 + 1205
    assert timed(file.trace).hit_tokens == 1000 // 16 * 16
    assert {"left out: 1 lines without an answer", "left out: 1 further parts of answers"} <= {
        *file.notes
    }


LOGS: dict[str, list[dict[str, Any]]] = {
    "litellm": [
        {
            "request_id": "a",
            "startTime": "2026-07-01 10:00:00",
            "prompt_tokens": 9,
            "completion_tokens": 5,
        },
        {
            "request_id": "b",
            "startTime": "2026-07-01 10:00:04",
            "prompt_tokens": 9,
            "completion_tokens": 5,
        },
        {
            "startTime": "2026-07-01 10:00:05",
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "status": "failure",
        },
    ],
    "langfuse": [
        {
            "type": "GENERATION",
            "trace_id": "t",
            "start_time": "2024-05-29 13:46:19.963000",
            "usage_details": {"input": 9, "output": 5},
        },
        {
            "type": "GENERATION",
            "trace_id": "t",
            "start_time": "2024-05-29 13:46:23.963000",
            "usage_details": {"input": 4, "input_cached_tokens": 5, "output": 5},
        },
        {"type": "SPAN", "trace_id": "t", "start_time": "2024-05-29 13:46:25.963000"},
    ],
    "openai": [
        {
            "object": "chat.completion",
            "created": 1790000000,
            "usage": {"prompt_tokens": 9, "completion_tokens": 5},
        },
        {
            "object": "chat.completion",
            "created": 1790000004,
            "usage": {"input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 5},
        },
        {"custom_id": "r", "response": None, "error": {"code": "batch_expired"}},
    ],
    "otel": [
        {
            "trace_id": "t",
            "start_time": 1790000000000000000,
            "attributes": {"gen_ai": {"usage": {"input_tokens": 9, "output_tokens": 5}}},
        },
        {
            "trace_id": "t",
            "start_time": 1790000004000000000,
            "attributes": {"llm.token_count.prompt": 9, "llm.token_count.completion": 5},
        },
        {"trace_id": "t", "start_time": 1790000005000000000, "attributes": {"http.route": "/"}},
    ],
    "aiperf results": [
        {
            "metadata": {
                "request_start_ns": 1790000000000000000 + 10**9 * start,
                "conversation_id": "c",
            },
            "metrics": {
                "input_sequence_length": {"value": 9},
                "output_sequence_length": {"value": 5},
            },
            "error": error,
        }
        for start, error in ((0, None), (4, None), (5, {"code": 500}))
    ],
    "guidellm": [
        {
            "benchmarks": [
                {
                    "requests": {
                        "successful": [
                            {"start_time": 1790000000.5, "prompt_tokens": 9, "output_tokens": 5},
                            {"start_time": 1790000004.5, "prompt_tokens": 9, "output_tokens": 5},
                        ],
                        "errored": [{"start_time": 1790000005.5, "prompt_tokens": 9}],
                    }
                }
            ]
        }
    ],
}


@pytest.mark.parametrize("name", LOGS)
def test_logs_are_read_and_say_what_is_left_out(tmp_path: Path, name: str) -> None:
    for content in (lines(*LOGS[name]), json.dumps(LOGS[name], indent=1).encode()):
        file = read(tmp_path, content)
        assert (file.trace.format, file.trace.num_prompt_tokens) == (name, 18)
        assert (len(file.trace), file.trace.num_output_tokens) == (2, 10)
        assert seconds(file.trace) == [0.0, 4.0]
        assert any(note.startswith("left out: 1 ") for note in file.notes), file.notes
    if name != "guidellm":
        paged = read(tmp_path, json.dumps({"data": LOGS[name], "meta": {"page": 1}}).encode())
        assert (paged.trace.format, len(paged.trace)) == (name, 2)


def test_streamed_answers_of_sagemaker_are_read(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    events = f'data: {{"choices": []}}\n\ndata: {json.dumps({"usage": usage})}\n\ndata: [DONE]\n'
    output = {"endpointOutput": {"data": events, "encoding": "TEXT"}}
    record = {"captureData": output, "eventMetadata": {"inferenceTime": "2026-07-01T10:00:00Z"}}
    trace = read(tmp_path, lines(record)).trace
    assert (trace.num_prompt_tokens, trace.num_output_tokens) == (7, 2)


def test_otlp_and_jaeger_are_read(tmp_path: Path) -> None:
    def tags(form: Callable[[int], Any]) -> list[dict[str, Any]]:
        names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
        return [
            {"key": name, "value": form(count)} for name, count in zip(names, (9, 5), strict=True)
        ]

    otlp = {"traceId": "1", "startTimeUnixNano": "1790000000125000000"}
    spans = [{**otlp, "attributes": tags(lambda count: {"intValue": str(count)})}]
    failed = {**spans[0], "status": {"code": "STATUS_CODE_ERROR"}}
    file = read(tmp_path, lines({"resourceSpans": [{"scopeSpans": [{"spans": [*spans, failed]}]}]}))
    assert (file.trace.format, len(file.trace)) == ("otel", 1)
    assert "left out: 1 requests that failed" in file.notes
    jaeger = [
        {"traceID": "1", "startTime": 1790000000125000 + us, "tags": tags(int)}
        for us in (0, 4_000_000)
    ]
    trace = read(tmp_path, json.dumps({"data": [{"traceID": "1", "spans": jaeger}]}).encode()).trace
    assert (trace.format, seconds(trace)) == ("otel", [0.0, 4.0])


TABLE = (
    "timestamp{0}input_length{0}output_length{0}hash_ids\n"
    "0{0}1200{0}3{0}{1}\n10000{0}1200{0}3{0}{2}\n"
)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "ids", [('"[1, 2, 3]"', '"[1, 2, 4]"'), ("1 2 3", "1 2 4"), ('"[1 2\n 3]"', '"[1 2 4]"')]
)
def test_a_mooncake_table_has_ids(tmp_path: Path, delimiter: str, ids: tuple[str, str]) -> None:
    file = read(tmp_path, TABLE.format(delimiter, *ids).encode())
    assert (file.trace.format, file.trace.tokens_per_id) == ("mooncake", 512)
    assert seconds(file.trace) == [0.0, 10.0]
    assert timed(file.trace).hit_tokens == 1024
    assert file.notes == ()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    text = EXAMPLES["azure"][0]
    assert len(read(tmp_path, text.encode(encoding)).trace) == 2
    mooncake = EXAMPLES["mooncake"][0]
    assert len(read(tmp_path, mooncake.encode(encoding)).trace) == 2


def test_a_table_may_have_lines_within_quotes_and_a_line_that_names_its_delimiter(
    tmp_path: Path,
) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["startTime", "prompt_tokens", "completion_tokens", "messages", "spend"])
    for second in (1, 5):
        time = f"2026-07-01T10:00:0{second}Z"
        writer.writerow([time, 9, 5, 'two\n\nlines, and a "quote"', 0.1])
    trace = read(tmp_path, text.getvalue().encode()).trace
    assert (trace.format, seconds(trace)) == ("litellm", [0.0, 4.0])
    excel = "sep=;\nTIMESTAMP;ContextTokens;GeneratedTokens\n2026-10-16 18:17:03,98;4808;10\n"
    assert read(tmp_path, excel.encode()).trace.num_prompt_tokens == 4808


def test_columns_are_named(tmp_path: Path) -> None:
    text = "when_s,who,in,out,kept\n0,a,320,16,0\n4,b,320,16,0\n9.5,a,480,16,336\n"
    columns = {"input": "in", "output": "out", "time": "when_s", "session": "who", "prefix": "kept"}
    file = read(tmp_path, text.encode(), columns=columns)
    assert (file.trace.format, seconds(file.trace)) == ("columns", [0.0, 4.0, 9.5])
    assert timed(file.trace).hit_tokens == 320  # the answer's last token is never computed
    objects = [{"at": {"ms": 5000 * n}, "n.in": 9, "n": {"out": 5}} for n in range(2)]
    fields = {"input": "n.in", "output": "n.out", "time": "at.ms"}
    trace = read(tmp_path, lines(*objects), columns=fields).trace
    assert (trace.num_prompt_tokens, seconds(trace)) == (18, [0.0, 5.0])
    path = write_trace(tmp_path / "trace", text.encode())
    named = ",".join(f"{role}={column}" for role, column in columns.items())
    assert "format columns" in succeed("replay", path, "--columns", named).output


def test_an_unknown_table_says_which_columns_would_do(tmp_path: Path) -> None:
    header = "request_created_at,total_tokens,prompt_tokens,completion_tokens\n"
    text = header + "2026-07-01 10:00:00,14,9,5\n"
    said = refusal(tmp_path, text.encode())
    columns = "input=prompt_tokens,output=completion_tokens,time=request_created_at"
    assert (
        "line 1: the format is unknown; the table has columns: request_created_at, total_tokens"
        in said
    )
    assert f"try --columns {columns}" in said
    named = dict(part.split("=") for part in columns.split(","))
    assert len(read(tmp_path, text.encode(), columns=named).trace) == 1
    assert "`kvoxide formats`" in refusal(tmp_path, b"a,b\n1,2\n")
    headless = refusal(tmp_path, b"0,1200,3\n")
    assert "nor the header of a table" in headless


def archive(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return data.getvalue()


def test_a_zip_archive_holds_one_trace(tmp_path: Path) -> None:
    mooncake = EXAMPLES["mooncake"][0].encode()
    assert len(read(tmp_path, archive(**{"logs/a.jsonl": mooncake})).trace) == 2
    more = {"a.csv": EXAMPLES["azure"][0].encode(), "README.md": b"x", "__MACOSX/._a.csv": b"x"}
    file = read(tmp_path, archive(**more))
    assert file.trace.format == "azure"
    assert "only a.csv of the zip archive is read" in file.notes
    several = refusal(tmp_path, archive(**{"a.jsonl": mooncake, "b.jsonl": mooncake}))
    assert "is a zip archive with several files: a.jsonl, b.jsonl; unpack it" in several
    assert "zip archive without files" in refusal(tmp_path, archive())
    assert "damaged zip archive" in refusal(tmp_path, archive(**{"a.jsonl": mooncake})[:-30])


def test_xz_and_bzip2_are_read(tmp_path: Path) -> None:
    import bz2

    mooncake = EXAMPLES["mooncake"][0].encode()
    for compressed in (lzma.compress(mooncake), bz2.compress(mooncake)):
        assert len(read(tmp_path, compressed).trace) == 2
        assert "ends too early" in refusal(tmp_path, compressed[:-9])


def parquet(table: Any) -> bytes:
    pq = pytest.importorskip("pyarrow.parquet")
    data = io.BytesIO()
    pq.write_table(table, data)
    return data.getvalue()


def test_parquet_and_arrow_are_read_by_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    baseten = pa.table(
        {
            "timestamp_start_unix_ms": [1790000000125, 1790000004125],
            "prompt": ["long\ntext", "text"],
            "input_tokens": [40, 60],
            "output_tokens": [5, 5],
            "total_hashes": pa.array([[2**63, 12, 13], [2**63, 12, 14, 15]], pa.list_(pa.uint64())),
            "block_size": [16, 16],
        }
    )
    arrow = io.BytesIO()
    with pa.ipc.new_file(arrow, baseten.schema) as writer:
        writer.write_table(baseten)
    for content in (parquet(baseten), arrow.getvalue()):
        trace = read(tmp_path, content).trace
        assert (trace.format, trace.tokens_per_id, seconds(trace)) == ("baseten", 16, [0.0, 4.0])
        assert timed(trace).hit_tokens == 32
    zone = datetime.timezone(datetime.timedelta(hours=2))
    times = [datetime.datetime(2026, 7, 1, 10, 0, second, tzinfo=zone) for second in (0, 7)]
    kinds = {"TIMESTAMP": pa.array(times, pa.timestamp("us", tz="Europe/Berlin"))}
    azure = pa.table({**kinds, "ContextTokens": [9, 9], "GeneratedTokens": [1, 1]})
    assert seconds(read(tmp_path, parquet(azure)).trace) == [0.0, 7.0]
    other = pa.table({"t": [0, 5], "use": [{"in": 9, "out": 5}, {"in": 9, "out": 5}]})
    columns = {"input": "use.in", "output": "use.out", "time": "t"}
    assert read(tmp_path, parquet(other), columns=columns).trace.num_prompt_tokens == 18
    assert "the format is unknown; the table has columns: a, b" in refusal(
        tmp_path, parquet(pa.table({"a": [1], "b": [2]}))
    )
    assert "is a damaged Parquet or Arrow file" in refusal(
        tmp_path, parquet(azure)[:-20] + b"x" * 20
    )


def test_nested_columns_are_read_as_objects(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    example = json.loads(EXAMPLES["exgentic"][0])
    trace = read(tmp_path, parquet(pa.Table.from_pylist([example]))).trace
    assert (trace.format, seconds(trace)) == ("exgentic", [0.0, 9.0])


def test_a_workbook_is_read(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
    for second in (0, 7):
        book.active.append([datetime.datetime(2026, 7, 1, 10, 0, second), 9, 1])
    book.create_sheet("notes")
    data = io.BytesIO()
    book.save(data)
    file = read(tmp_path, data.getvalue())
    assert (file.trace.format, seconds(file.trace)) == ("azure", [0.0, 7.0])
    assert any("only the sheet 'Sheet' of the workbook is read" in note for note in file.notes)


@pytest.mark.parametrize(
    ("library", "head", "says"),
    [
        ("pyarrow", b"PAR1", "is a Parquet or Arrow file, which needs pyarrow; {tables}; or"),
        ("openpyxl", None, "is an Excel workbook, which needs openpyxl; {tables}; or"),
        ("zstandard", b"\x28\xb5\x2f\xfd", "it is a zstd stream, which needs zstandard; {cli}"),
    ],
)
def test_without_a_library_the_file_and_the_extra_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, head: bytes | None, says: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    said = refusal(tmp_path, head + bytes(60) if head else _empty_workbook())
    assert says.format(tables=with_extra("tables"), cli=with_extra("cli")) in said


def _empty_workbook() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    return data.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"SQLite format 3\x00" + bytes(90), "is an SQLite database; export it as CSV"),
        (b"\xd0\xcf\x11\xe0" + bytes(90), "is an old Excel workbook"),
        (b"GGUF" + bytes(90), "is the weights of a model (GGUF); give a trace of requests"),
        (b"a" * 257 + b"ustar\x00", "is a tar archive; unpack it first"),
        (bytes(range(255)), "is binary data of an unknown kind"),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refusal(tmp_path, content)
