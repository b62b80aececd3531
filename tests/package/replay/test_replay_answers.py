"""Answers that come back in later prompts: what is said of them, and what is hit of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testing.pages import replay_page
from tests.testing.paths import ROOT
from tests.testing.traces import kvoxide, line, mooncake_line, replay_json, succeed, write_trace

ABSENT = "no answer comes back in this trace: without output_hash_ids"
FIRST = {"input_length": 20, "output_length": 30, "hash_ids": [0, 1]}
# The id of tokens 16 to 31, which the first prompt ends in, is another one here.
SECOND = {"input_length": 70, "output_length": 1, "hash_ids": [0, 7, 8, 9, 10]}
OTHER = {"input_length": 30, "output_length": 9, "hash_ids": [20, 21]}
PLAN = (
    *("--model", ROOT / "tests/vllm/models/configs/qwen3-8b.json", "--max-model-len", "8192"),
    *("--memory", "2GiB", "--target", "hit_share>1%", "--instances", "1", "--policy", "fifo"),
)


def of_session(session: int, fields: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"session_id": session, "timestamp": 0, **fields, **more}).encode() + b"\n"


@pytest.fixture
def chat(tmp_path: Path) -> str:
    """A session of two turns, and a session of one."""
    lines = of_session(1, FIRST), of_session(2, OTHER), of_session(1, SECOND, timestamp=9000)
    return write_trace(tmp_path / "chat.jsonl", *lines)


def notes(*arguments: str | Path) -> list[str]:
    """The lines about answers that a command prints in addition to its results."""
    printed = succeed(*arguments).stderr.splitlines()
    return [row for row in printed if "answers" in row and not row.startswith("closed loop")]


def hits(tmp_path: Path, *arguments: str | Path) -> list[int]:
    """The hit tokens of the pool, and of the one that never evicts."""
    record = replay_json(tmp_path, *arguments, "--groups", "full:16", "--concurrency", "1")
    return [result["hit_tokens"] for result in record["results"]]


@pytest.mark.parametrize("command", [("replay",), ("plan", *PLAN)])
def test_a_trace_without_answers_says_so_once(chat: str, command: tuple[str | Path, ...]) -> None:
    name, *options = command
    (note,) = notes(name, chat, *options)
    assert note.startswith(ABSENT)
    assert note.endswith("--answers-return infers the answers from later prompts")
    assert kvoxide(name, chat, *options, "--quiet").stderr == ""


def test_a_trace_without_sessions_is_told_to_have_them(tmp_path: Path) -> None:
    for lines in ([mooncake_line([1, 2], 900)] * 2, [line(range(50), 9)] * 2):
        (note,) = notes("replay", write_trace(tmp_path / "t", *lines))
        assert note.startswith(ABSENT)
        assert note.endswith("infers the answers of lines with a session_id from later prompts")


def test_nothing_is_said_where_no_answer_could_come_back(tmp_path: Path) -> None:
    alone = of_session(1, FIRST), of_session(2, SECOND)
    single = (mooncake_line([1, 2], 900),)
    silent = [mooncake_line([1, 2], 900, output_length=0)] * 2
    known = of_session(1, FIRST, output_hash_ids=[8, 9]), of_session(1, SECOND)
    for lines in (alone, single, silent, known):
        assert notes("replay", write_trace(tmp_path / "t", *lines)) == []


def test_a_follow_up_hits_the_answer_before_it(tmp_path: Path, chat: str) -> None:
    assert hits(tmp_path, chat) == [16, 16]
    assert hits(tmp_path, chat, "--answers-return") == [48, 48]
    (note,) = notes("replay", chat, "--answers-return")
    assert note == (
        "answers of 1 of 3 requests come back in a later prompt. The other 2 have no later prompt"
        " that contains the answer"
    )
    trace = replay_json(tmp_path, chat, "--answers-return")["trace"]
    assert (trace["returned_answers"], trace["tokens_per_id"]) == (1, 16)


@pytest.mark.parametrize("router", ["session", "prefix", "least-loaded"])
def test_answers_are_known_behind_a_router(tmp_path: Path, chat: str, router: str) -> None:
    several = ("--instances", "2", "--router", router, "--arrivals", "trace", "--answers-return")
    assert hits(tmp_path, chat, *several)[1] == 48


def test_hits_on_answers_are_counted_apart(tmp_path: Path, chat: str) -> None:
    policies = ("--policy", "adaptive", "--policy", "fifo", "--groups", "full:16")
    for options, on_answers in (((), 0), (("--answers-return",), 32)):
        given = (chat, *options, *policies, "--concurrency", "1")
        page, record = replay_page(tmp_path, *given, "--blocks", "100")
        adaptive, fifo, unlimited = record["results"]
        assert adaptive["hit_answer_tokens"] == on_answers
        assert (fifo["hit_answer_tokens"], unlimited["hit_answer_tokens"]) == (None, None)
        shown = [row.get("on\nanswers") for row in page.table("evictions")]
        assert shown == (["26.67%", "-", "-"] if on_answers else [None] * 3)
    several = ("--instances", "2", "--router", "session", "--arrivals", "trace")
    record = replay_json(tmp_path, chat, "--answers-return", *policies, *several)
    assert record["results"][0]["hit_answer_tokens"] == 32


def test_a_plan_counts_hits_on_answers(tmp_path: Path, chat: str) -> None:
    def hit_share(*options: str) -> float:
        path = tmp_path / "plan.json"
        succeed("plan", chat, *PLAN, *options, "--json", path, "--quiet")
        share: float = json.loads(path.read_bytes())["verdicts"][0]["figures"]["hit_share"]["value"]
        return share

    assert hit_share() == 16 / 120
    assert hit_share("--answers-return") == 48 / 120


def test_tokens_and_chats_have_answers_too(tmp_path: Path) -> None:
    tokens = [{"prompt_token_ids": list(range(20)), "output_length": 30}]
    tokens.append({"prompt_token_ids": list(range(70)), "output_length": 1})
    trace = write_trace(tmp_path / "tokens", *(of_session(1, fields) for fields in tokens))
    assert hits(tmp_path, trace, "--answers-return") == [48, 48]
    chats = [{**FIRST, "chat_id": 7, "parent_chat_id": -1}]
    chats.append({**SECOND, "chat_id": 9, "parent_chat_id": 7})
    trace = write_trace(tmp_path / "chats", *(json.dumps(c).encode() + b"\n" for c in chats))
    assert hits(tmp_path, trace, "--answers-return") == [48, 48]


def test_a_trace_that_has_answers_keeps_them(tmp_path: Path) -> None:
    known = of_session(1, FIRST, output_hash_ids=[8]), of_session(1, SECOND)
    trace = write_trace(tmp_path / "known", *known)
    assert hits(tmp_path, trace) == hits(tmp_path, trace, "--answers-return") == [16, 16]
    (note,) = notes("replay", trace, "--answers-return")
    assert note.endswith("--answers-return changes nothing")
    assert replay_json(tmp_path, trace, "--answers-return")["trace"]["returned_answers"] is None


def test_the_page_says_what_becomes_of_answers(tmp_path: Path, chat: str) -> None:
    page, _ = replay_page(tmp_path, chat, "--answers-return", "--blocks", "100")
    assert any(text.startswith("answers of 1 of 3 requests") for text in page.texts["dd"])
