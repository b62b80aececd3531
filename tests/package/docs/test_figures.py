"""Tests that figures in pages are the figures of the records and of the code that they name."""

import re
import tomllib

import pytest
from kvoxide import DEFAULT_PIN_MIN_DROP_SIZE, Policy, Trace
from kvoxide.lab.replay.input import parse_policy
from kvoxide.vllm.environment import settings
from kvoxide.vllm.shadow.recorder import DEFAULT_MAX_CALLS

from tests.testing.doc_pages import PRESENT, spans
from tests.testing.paths import DOCS, ROOT

PERFORMANCE = DOCS / "explain/performance.md"
POLICIES = DOCS / "reference/policies.md"
SETTINGS = DOCS / "reference/settings.md"
# A figure with a decimal point or at least three digits.
FIGURE = re.compile(r"\d+\.\d+|\d{3,}")


def sections_of_records() -> list[tuple[str, str]]:
    """Return each section with a table that names the records of its figures."""
    sections = re.split(r"^## ", PERFORMANCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = ((each, re.findall(r"\[records\]\(\.\./(lab/\w+\.md)", each)) for each in sections)
    return [(each, records[0]) for each, records in named if records and "\n| step" in each]


SECTIONS = sections_of_records()


@pytest.mark.parametrize(("section", "records"), SECTIONS, ids=[name for _, name in SECTIONS])
def test_times_of_steps_are_in_the_records(section: str, records: str) -> None:
    rows = re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:]
    figures = {figure for row in rows for figure in FIGURE.findall(row.split("|", 2)[2])}
    assert len(figures) > 5
    recorded = set(FIGURE.findall((DOCS / records).read_text(encoding="utf-8")))
    assert figures - recorded == set()


def test_three_sections_name_records() -> None:
    named = [records for _, records in SECTIONS]
    assert named == ["lab/cuda.md", "lab/speed.md", "lab/cuda.md"]


def settings_table() -> dict[str, list[str]]:
    text = SETTINGS.read_text(encoding="utf-8")
    (body,) = re.findall(r"^\| variable \| values .*\n\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines())
    return {name.strip("`"): rest for name, *rest in rows}


def test_the_page_of_settings_has_every_variable() -> None:
    sources = (ROOT / "python/kvoxide").rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    read = set(re.findall(r"[\"'](KVOXIDE(?:_[A-Z_]*[A-Z])?)[\"']", text))
    assert settings_table().keys() == read | set(settings.POLICY_VARIABLES)


def test_the_page_of_settings_has_the_values_of_the_code() -> None:
    table = settings_table()
    for variable in (settings.MODE_VARIABLE, settings.HOST_VARIABLE):
        assert re.findall(r"`(\w+)`", table[variable][0]) == list(settings.MODES)
        assert table[variable][1] == f"`{settings.MODES[0]}`"
    policies = re.findall(r"`([\w,=]+)`", table[settings.POLICY_VARIABLE][0])
    assert policies == [*settings.RETENTIONS, "adaptive,share=S"]
    assert table[settings.PIN_MIN_DROP_VARIABLE][1] == f"`{DEFAULT_PIN_MIN_DROP_SIZE}`"
    assert table["KVOXIDE_SHADOW_CALLS"][1] == f"`{DEFAULT_MAX_CALLS}`"


def policies() -> list[list[str]]:
    """Return each policy of the page as the command line and Python have it, with numbers."""
    text = re.sub(r"=N\b", "=8192", POLICIES.read_text(encoding="utf-8"))
    text = re.sub(r"=S\b", "=0.5", text)
    rows = re.findall(r"^\| `([^`-][^`]*)` \| `(?:Policy\()?([^`)]*)\)?`", text, re.MULTILINE)
    return [list(row) for row in rows]


@pytest.mark.parametrize(("name", "values"), policies(), ids=[name for name, _ in policies()])
def test_a_policy_is_the_same_in_the_command_line_and_in_python(name: str, values: str) -> None:
    assert parse_policy(name).policy == eval(f"Policy({values})", {"Policy": Policy})


def test_the_page_of_trace_formats_has_every_format() -> None:
    text = (DOCS / "reference/trace-formats.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"^\| format \| .*\n\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = {tuple(line.strip("| ").split(" | ")) for line in body.splitlines()}
    assert rows == {
        (f"`{name}`", about, sign, "yes" if is_played else "no")
        for name, about, sign, _, is_played in Trace.describe_formats()
    }


def test_the_releases_of_the_page_of_compatibility_are_the_supported_ones() -> None:
    from kvoxide.vllm.environment.releases import RELEASES

    page = DOCS / "reference/compatibility.md"
    titles = re.findall(
        r"^\| (?:feature|vLLM's spec .*?) \| (\d.*) \|$", page.read_text("utf-8"), re.M
    )
    assert [title.split(" | ") for title in titles] == [list(RELEASES)] * 2
    assert spans(page)


def test_versions_of_rust_and_python_are_the_ones_of_the_manifests() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PRESENT)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
    assert set(re.findall(r"\bRust (\d+\.\d+)", text)) == {cargo["package"]["rust-version"]}
    pythons = set(re.findall(r"\bC?Python (\d\.\d+) (?:or|and) later", text))
    assert {f">={python}" for python in pythons} == {project["requires-python"]}
