"""``docs/reference/log-messages.md`` has each message that kvoxide logs, and no other."""

import re

import pytest

from tests.testing import log_messages, style
from tests.testing.log_messages import ANY
from tests.testing.paths import ROOT

CALLS = list(log_messages.log_calls())
MESSAGES = {call.message for call in CALLS if call.message is not None}
# Records of runs quote what was logged then.
PAGES = ["README.md", *style.pages("docs/")]
LOGGED_BY_RUST = re.compile(
    r'call_method\w*\((?:intern!\(\w+, )?"(?:debug|info|warn|error|critical|exception)'
    r'|"logging"|"logger"|\blog::'
)


def test_each_log_call_has_its_text_in_the_call() -> None:
    assert [call.place for call in CALLS if call.message is None] == []
    assert len(MESSAGES) > 10


def test_each_message_begins_with_kvoxide() -> None:
    assert [each.text for each in MESSAGES if not each.text.startswith("kvoxide: ")] == []


def test_the_page_has_each_message_with_level_meaning_and_action() -> None:
    assert set(log_messages.documented()) == MESSAGES


def test_the_page_has_each_message_once_and_no_text_without_an_entry() -> None:
    texts = [each.text for each in log_messages.documented()]
    assert sorted(texts) == sorted(set(texts)) == sorted(log_messages.texts_of_page())


def test_rust_code_logs_through_python_only() -> None:
    sources = (ROOT / "rust").rglob("*.rs")
    found = {path.name for path in sources if LOGGED_BY_RUST.search(path.read_text("utf-8"))}
    assert found == set()


def test_the_table_of_keys_has_each_key_of_the_line_per_minute() -> None:
    (text,) = {each.text for each in MESSAGES if "seconds=" in each.text}
    keys = [row[0].strip("`") for row in log_messages.rows("### Each minute")]
    assert keys == re.findall(r"(\w+)=", text)


def test_each_reason_of_the_page_is_in_the_code() -> None:
    reasons = [row[0].strip("`") for row in log_messages.rows("## Reasons")]
    assert len(reasons) > 10
    literals = log_messages.string_literals()
    for reason in reasons:
        text = re.sub("<[a-z ]+>", ANY, reason)
        assert any(log_messages.pattern(text).fullmatch(literal) for literal in literals), reason


@pytest.mark.parametrize("page", PAGES)
def test_other_pages_quote_messages_as_the_code_logs_them(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    quoted = re.findall(r"^ *(?:\S+ )*?(kvoxide: .+)$", "\n".join(_fenced(text)), re.MULTILINE)
    patterns = [log_messages.pattern(each.text) for each in MESSAGES]
    assert [line for line in quoted if not any(known.fullmatch(line) for known in patterns)] == []


def test_pages_quote_changes_by_plugins_as_the_code_names_them() -> None:
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    quoted = [
        change
        for text in texts
        for fenced in _fenced(text)
        for change in re.findall(r"plugin changed vLLM's code: (.+?)\. Run", fenced)
    ]
    names = ("is replaced by", "is removed", f"got {ANY} from")
    patterns = [
        log_messages.pattern(literal)
        for literal in log_messages.string_literals()
        if literal.startswith(ANY) and any(name in literal for name in names)
    ]
    assert len(quoted) >= 2
    assert len(patterns) >= len(names)
    assert [it for it in quoted if not any(known.fullmatch(it) for known in patterns)] == []


def _fenced(text: str) -> list[str]:
    return re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
