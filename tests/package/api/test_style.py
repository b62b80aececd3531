"""The text of each top folder keeps to what docs/STYLE.md says can be counted."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.testing import style
from tests.testing.paths import ROOT

# The verbs with which an entry of the changelog may begin.
VERBS = (
    "Accept Adapt Add Allow Apply Ask Avoid Begin Build Cache Call Check Combine Compare "
    "Compute Continue Convert Copy Correct Count Create Deprecate Describe Disable Distinguish "
    "Divide Do Draw Drop End Estimate Explain Extend Fix Follow Forget Give Group Handle Ignore "
    "Import Improve Include Increase Install Keep Know Learn Leave Limit List Log Lower Make "
    "Map Measure Merge Move Name Note Notify Pass Pin Plan Play Prefer Prefetch Prevent Print "
    "Protect Provide Publish Put Raise Read Recognise Record Reduce Refuse Remove Rename Repeat "
    "Replace Report Require Restore Return Run Save Say Select Separate Set Shorten Show "
    "Simplify Skip Sort Split Start Stop Store Support Switch Take Test Treat Update Use "
    "Validate Verify Warn Write"
)

MESSAGES_IN_PLAIN_ENGLISH = (
    "python/kvoxide/",
    "rust/core/src/",
    "rust/python/src/",
    "rust/replay/src/",
)


def test_no_folder_has_a_text_that_the_page_asks_to_avoid() -> None:
    assert style.counts() == {}, "see docs/STYLE.md for what to write instead"


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("a.rs", "/// What a request saw.\nstruct Seen;", "noun clauses"),
        ("a.py", '"""Return the place behind it."""', "words of rule 5"),
        ("a.md", "Small numbers, such as those of chunks.", "those of"),
    ],
)
def test_texts_that_the_page_asks_to_avoid_are_found(
    file: str, text: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    found = [style.matches(kind, each) for kind, each in style.texts(tmp_path / file)]
    assert [name for names in found for name in names] == [name]


def test_changes_are_grouped_by_kind_and_begin_with_a_verb() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    kinds = set(re.findall(r"^### (.+)$", changes, re.MULTILINE))
    assert kinds <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
        "Performance",
    }
    entries = re.findall(r"^- (.+)$", changes, re.MULTILINE)
    assert [entry for entry in entries if entry.split()[0] not in VERBS.split()] == []
    assert [entry for entry in entries if style.PATTERNS["words of rule 5"].search(entry)] == []


@pytest.mark.parametrize("folder", MESSAGES_IN_PLAIN_ENGLISH)
def test_messages_are_in_plain_english(folder: str) -> None:
    found = [(place, text) for place, text in style.messages(folder) if "/tests_of" not in place]
    assert found, "there are messages"
    assert [(place, text) for place, text in found if style.faults(text)] == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("kvoxide: the prefix cache was reset.", []),
        ("the files of the request stand behind it", ["words of rule 5"]),
        ("kvoxide: nobody told of which", ["words of rule 5", "those of"]),
        ("kvoxide: what a server cannot use is ignored", ["noun clauses"]),
        ("the block is free; which one is unknown", ["noun clauses"]),
        ("What is ignored? A block.", []),
        ("word " * 21, ["more than 20 words in a sentence"]),
        ("word " * 15 + "word; " + "word " * 15, ["more than 20 words in a sentence"]),
        ("word " * 20 + "word. " + "word " * 20, ["more than 20 words in a sentence"]),
        ("word " * 19 + "word. " + "word " * 20, []),
    ],
)
def test_a_message_is_checked_by_each_rule(message: str, expected: list[str]) -> None:
    assert style.faults(message) == expected


def test_a_computed_part_of_a_message_is_one_word() -> None:
    python = "def f():\n    'a doc string'\n    raise X(f'a {b + c:.1f} d' ' e {f}')\n"
    assert list(style._strings_of_python(python)) == [(3, "a x d e {f}")]
    rust = '// "a comment is none"\nf("a {b:?} \\\n   c")'
    assert list(style._strings_of_rust(rust)) == [(2, "a x c")]


PYTHON = """
NAMES = "a list of names".split()
PATTERN = re.compile("a pattern of text")

@click.command()
@click.option("--n", help="The help of" " an option.")
def command(n):
    '''The help of a command.'''
"""
RUST = """
#[expect(dead_code, reason = "a reason of ours")]
const LINE: &str = r#"{"a": "raw text is an example"}"#;
#[cfg(test)]
mod tests { const TEXT: &str = "text of a test"; }
"""


def test_only_printed_texts_are_messages() -> None:
    texts = {text for _, text in style._strings_of_python(PYTHON)}
    assert texts == {"--n", "The help of an option.", "The help of a command."}
    assert list(style._strings_of_rust(RUST)) == []


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("docstring", "What is left of a request.", ["noun clauses"]),
        ("docstring", "Return what is left of a request.", []),
        ("docstring", "What is left of a request?", []),
        ("comment", "What is left of a request.", []),
        ("comment", "Nobody stands behind it.", ["words of rule 5"] * 3),
        ("page", "The blocks of a request and those of\nanother.", ["those of"]),
    ],
)
def test_a_text_is_counted_for_what_it_is(kind: str, text: str, expected: list[str]) -> None:
    assert list(style.matches(kind, text)) == expected


def test_code_and_other_pages_are_not_counted() -> None:
    texts = dict(style.texts(ROOT / "docs" / "STYLE.md"))
    assert "KVOXIDE_ACCEPT" in texts["page"]
    assert "_tell_observers" not in texts["page"]
    assert Counter(style.matches("page", texts["page"]))["words of rule 5"] > 0
