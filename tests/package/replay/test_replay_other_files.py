"""Files that are no traces, or wrap one: each refused with what to do instead, or read."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from kvoxide import Trace
from kvoxide.lab.replay.input import read_trace
from kvoxide.lab.replay.input.trace_file import TraceFileError

from tests.testing.traces import write_trace

AVERAGE = {"unit": "tokens", "avg": 550.0, "p99": 560.0}
SPAN = {
    "traceId": "1",
    "spanId": "2",
    "startTimeUnixNano": "1790000000125000000",
    "attributes": [
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1200"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "55"}},
    ],
}
CALL = {"startTime": "2026-07-01T10:00:00Z", "prompt_tokens": 9, "spend": 0.1}
MOONCAKE = {"input_length": 1200, "output_length": 3, "hash_ids": [1, 2, 3]}


def read(tmp_path: Path, content: bytes, **options: Any) -> Any:
    return read_trace(write_trace(tmp_path / "trace", content), **options)


def refusal(tmp_path: Path, content: bytes) -> str:
    with pytest.raises(TraceFileError) as refused:
        read(tmp_path, content)
    return str(refused.value)


def value(record: object, indent: int | None = None) -> bytes:
    return json.dumps(record, indent=indent).encode()


@pytest.mark.parametrize(
    ("report", "name", "instead"),
    [
        (
            {"aiperf_version": "0.13.0", "request_latency": AVERAGE, "input_config": {}},
            "aiperf summary",
            "profile_export.jsonl of the same run",
        ),
        (
            {"osl": AVERAGE, "input_config": {"endpoint": {"model_names": ["m"]}}},
            "aiperf summary",
            "profile_export.jsonl of the same run",
        ),
        (
            {"osl": AVERAGE, "input_config": {"formatted_model_name": "m", "artifact_dir": "a"}},
            "genai-perf",
            "Run AIPerf, its successor",
        ),
        (
            {"service_kind": "openai", "experiments": [{"requests": [{"timestamp": 1}]}]},
            "genai-perf",
            "KVOXIDE_RECORD",
        ),
        ({"info": {"trace_id": "tr-1"}, "data": {"spans": []}}, "mlflow", "OpenTelemetry"),
        (
            [{"trace_id": "tr-1", "trace_metadata": {}, "request_time": 5, "spans": []}],
            "mlflow",
            "--columns",
        ),
        ({"resourceMetrics": [{"scopeMetrics": []}]}, "metrics", "KVOXIDE_RECORD"),
        (
            {"data": [{"object": "bucket", "start_time": 5, "results": [{"input_tokens": 5}]}]},
            "metrics",
            "KVOXIDE_RECORD",
        ),
        ({"status": "success", "data": {"resultType": "matrix"}}, "metrics", "a line per request"),
    ],
)
def test_reports_say_which_file_to_play(
    tmp_path: Path, report: object, name: str, instead: str
) -> None:
    for indent in (None, 2):
        said = refusal(tmp_path, value(report, indent))
        assert f"format {name}" in said
        assert instead in said
        assert "try --columns" not in said


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Metric,avg,min,max,p99,p95", "aiperf summary"),
        ("trace_id,trace,state,request_time,execution_duration,request,response", "mlflow"),
        ("start_time,end_time,num_model_requests,input_tokens,output_tokens", "metrics"),
        ('"Time","vllm:prompt_tokens_total","vllm:generation_tokens_total"', "metrics"),
    ],
)
def test_tables_of_reports_suggest_no_columns(tmp_path: Path, header: str, name: str) -> None:
    said = refusal(tmp_path, f"{header}\n1,2,3,4,5,6,7\n".encode())
    assert f"format {name}" in said
    assert "try --columns" not in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404</html>", "is a web page"),
        (b"# HELP vllm:prompt_tokens_total Tokens.\n", "Prometheus metrics"),
        (b"a,b\r1,2\r3,4\r", "only with CR"),
        (b'10.0.0.1 - - [21/Sep/2026] "POST /v1 HTTP/1.1" 200 5\n', "text logs of servers"),
        (b"INFO 09-21 12:00:00 [loggers.py:123] Engine 000\n", "KVOXIDE_RECORD"),
        (b"0,1200,3\n", "Write the names of the columns as first line"),
    ],
)
def test_other_text_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refusal(tmp_path, content)


def test_a_column_that_is_read_has_one_name(tmp_path: Path) -> None:
    head = b"TIMESTAMP,ContextTokens,ContextTokens,GeneratedTokens\n"
    said = refusal(tmp_path, head + b"2023-11-16 18:17:03,1000,1,10\n")
    assert "field 'ContextTokens' is the name of several columns" in said
    head = b"TIMESTAMP,x,x,ContextTokens,GeneratedTokens\n"
    assert len(read(tmp_path, head + b"2023-11-16 18:17:03,1,1,1000,10\n").trace) == 1


def test_lengths_with_a_time_of_another_name_suggest_columns(tmp_path: Path) -> None:
    columns = "--columns input=input_tokens,output=output_tokens,time=start_time"
    assert columns in refusal(tmp_path, b"start_time,input_tokens,output_tokens\n5,9,5\n")
    row = value({"start_time": 5, "input_tokens": 9, "output_tokens": 5})
    assert columns in refusal(tmp_path, row)
    assert columns in refusal(tmp_path, row + b"\n" + row)


def test_chains_of_langsmith_are_left_out(tmp_path: Path) -> None:
    head = b"run_type,start_time,prompt_tokens,completion_tokens\n"
    rows = b"chain,2026-07-01T10:00:00,18,10\n" + b"llm,2026-07-01T10:00:01,9,5\n" * 2
    file = read(tmp_path, head + rows)
    assert file.trace.num_prompt_tokens == 18
    assert "left out: 1 runs that are not calls of a model" in file.notes


@pytest.mark.parametrize("field", ["conversation", "turns"])
def test_data_sets_of_conversations_are_named(tmp_path: Path, field: str) -> None:
    said = refusal(tmp_path, value({"id": 1, field: [{"role": "user", "content": "hello"}]}))
    assert f"field '{field}' is text" in said


def test_a_named_field_that_no_line_has_is_noted(tmp_path: Path) -> None:
    columns = {"input": "in", "output": "out", "time": "when", "session": "chat"}
    rows = [value({"in": 9, "out": 5, "at": number, "chat": "c"}) for number in range(2)]
    file = read(tmp_path, b"\n".join(rows), columns=columns)
    assert "no line has 'when', which columns names for time" in file.notes
    assert not any("chat" in note for note in file.notes)


def test_a_file_of_damaged_lines_shows_the_first(tmp_path: Path) -> None:
    content = b"TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1000,10\n"
    with pytest.raises(TraceFileError, match=r'bad lines: 1; .*line 2: .*TIMESTAMP.* is "noon"'):
        read(tmp_path, content, skip_bad=True)


@pytest.mark.parametrize(
    "wrapped",
    [
        {"batches": [{"scopeSpans": [{"spans": [SPAN]}]}]},
        {"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}},
        {"resourceSpans": [{"instrumentationLibrarySpans": [{"spans": [SPAN]}]}]},
    ],
)
def test_spans_are_found_in_what_tempo_and_old_libraries_write(
    tmp_path: Path, wrapped: object
) -> None:
    trace = read(tmp_path, value(wrapped)).trace
    assert (trace.format, len(trace), trace.num_prompt_tokens) == ("otel", 1, 1200)


def test_spans_without_tokens_say_which_attribute_is_read(tmp_path: Path) -> None:
    said = refusal(tmp_path, value({"resourceSpans": [{"spans": [{**SPAN, "attributes": []}]}]}))
    assert "holds no request; left out: 1 spans without tokens" in said
    assert "gen_ai.usage.input_tokens" in said


def test_calls_without_generated_text_are_left_out(tmp_path: Path) -> None:
    kinds = ("acompletion", "aembedding", "completion", "arerank", "atranscription")
    calls = [{**CALL, "completion_tokens": 5, "call_type": kind} for kind in kinds]
    file = read(tmp_path, b"\n".join(map(value, calls)))
    assert len(file.trace) == 2
    assert "left out: 3 calls that generate no text, such as embeddings" in file.notes


def test_the_warmup_of_aiperf_is_left_out(tmp_path: Path) -> None:
    def request(start: int, phase: str) -> bytes:
        metrics = {"input_sequence_length": {"value": 9}, "output_sequence_length": {"value": 5}}
        metadata = {"request_start_ns": start, "benchmark_phase": phase}
        return value({"metadata": metadata, "metrics": metrics, "error": None})

    rows = [request(10**9, "warmup"), request(10**10, "profiling"), request(10**11, "profiling")]
    file = read(tmp_path, b"\n".join(rows))
    assert len(file.trace) == 2
    assert "left out: 1 requests before the measurement (warmup)" in file.notes


def test_values_that_each_take_lines_are_read(tmp_path: Path) -> None:
    rows = [value({**MOONCAKE, "timestamp": 1000 * number}, indent=2) for number in range(3)]
    assert len(read(tmp_path, b"\n".join(rows)).trace) == 3
    assert len(read(tmp_path, b"".join(rows)).trace) == 3
    assert "not a JSON object" in refusal(tmp_path, b"\n".join(rows) + b"}")


@pytest.mark.parametrize("rate", [60, 100, 500])
def test_a_dense_load_in_fractions_of_milliseconds_is_not_stretched(
    tmp_path: Path, rate: int
) -> None:
    generator = random.Random(rate)
    moment, rows = 0.0, []
    for _ in range(2000):
        rows.append(value({**MOONCAKE, "timestamp": moment}))
        moment += generator.expovariate(rate) * 1000
    file = read(tmp_path, b"\n".join(rows))
    (said,) = (note for note in file.notes if note.startswith("times are read as milliseconds: "))
    assert said.endswith("use --time-unit s for seconds")


def test_reports_are_listed_as_not_played() -> None:
    played = {name: is_played for name, _, _, _, is_played in Trace.describe_formats()}
    for name in ("aiperf summary", "genai-perf", "mlflow", "metrics", "dataset"):
        assert played[name] is False
