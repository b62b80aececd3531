"""Tests that the documents are right about options, kinds and errors, that their links work, and
that the README's example runs."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import kvoxide
import pytest
from kvoxide import KvoxideError
from kvoxide.lab.model import FAMILIES
from kvoxide.lab.plan.command import plan
from kvoxide.lab.plan.target import METRICS
from kvoxide.lab.replay.cli.replay_command import replay
from kvoxide.lab.replay.input import KINDS, PRESETS
from kvoxide.lab.replay.setup import DEFAULT_PRESET

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PAGES = ("*.md", "docs/**/*.md", "examples/*.md", "rust/*/*.md", "tests/*.md")
DOCUMENTS = sorted(page for pattern in PAGES for page in ROOT.glob(pattern))
SPAN = re.compile(r"`([^`]+)`")
SITE = sorted((ROOT / "docs").glob("**/*.md"))
INDEX = ROOT / "docs" / "README.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(document: Path) -> str:
    """Return the text without blocks of code."""
    text = document.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def table(document: str, first_title: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the table whose first column has this title."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^\| {first_title} \|.*\n\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    for line in str(body).splitlines():
        yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(document: Path) -> None:
    links = [link for link in LINK.findall(prose(document)) if "://" not in link]
    for link in links:
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("document", SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_are_nested_by_four_spaces(document: Path) -> None:
    """GitHub nests by two or three spaces, too; the site then numbers such items on."""
    assert re.findall(r"^(?: {1,3}| {5,7})(?:[-*]|\d+\.) .*", prose(document), re.MULTILINE) == []


def test_the_index_names_every_page() -> None:
    docs = ROOT / "docs"
    named = {(docs / link.partition("#")[0]).resolve() for link in LINK.findall(prose(INDEX))}
    assert named >= {page for page in docs.glob("**/*.md") if page.parent.name != "lab"} - {INDEX}


def test_the_readme_names_the_index() -> None:
    assert "docs/README.md" in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_options_of_replay() -> None:
    rows = table("reference/replay.md", "option")
    said = {SPAN.findall(name)[0]: SPAN.findall(value) for name, value, _ in rows}
    options = [option for option in replay.params if isinstance(option, click.Option)]
    assert said == {option.opts[0]: default(option) for option in options}


def test_options_of_plan() -> None:
    rows = table("reference/plan.md", "option")
    said = {SPAN.findall(name)[0]: SPAN.findall(value) for name, value, _ in rows}
    options = [option for option in plan.params if isinstance(option, click.Option)]
    own = {option.opts[0]: default(option) for option in options if option.opts[0] in said}
    assert said == own
    of_replay = {option.opts[0] for option in replay.params}
    assert {option.opts[0] for option in options} - of_replay <= said.keys()


def test_targets_of_plan() -> None:
    rows = [
        (SPAN.findall(name), SPAN.findall(units))
        for name, _, _, units in table("reference/plan.md", "figure")
    ]
    assert [name for names, _ in rows for name in names] == list(METRICS)
    for names, units in rows:
        for name in names:
            assert set(units) <= METRICS[name].units.keys()


def default(option: click.Option) -> list[str]:
    """Return the default of an option as the column shows it."""
    if option.opts[0] == "--preset":
        return [DEFAULT_PRESET]
    match option.default:
        case bool():
            return []
        case int() | str():
            return [str(option.default)]
        case tuple():
            return list(option.default)
    return []


def test_groups_of_replay() -> None:
    rows = table("reference/replay.md", "kind")
    kinds = {kind.strip("`"): group.strip("`") for kind, group, _ in rows}
    assert kinds == {name: kind.name for name, kind in KINDS.items()}
    named = table("reference/replay.md", "preset")
    presets = {name.strip("`"): groups.strip("`") for name, groups in named}
    assert presets == PRESETS


def test_models_of_replay() -> None:
    rows = table("lab/models.md", "class in `architectures`")
    assert sorted(name for cell, _ in rows for name in SPAN.findall(cell)) == sorted(FAMILIES)


def test_the_support_table_is_what_the_kinds_declare() -> None:
    declared = [
        [
            f"`{kind.name}`",
            kind.hit_needs,
            kind.releases or "none",
            *("yes" if it else "no" for it in (kind.is_sparse, kind.is_pinned_by_drop)),
            *("yes" if it else "no" for it in (kind.supports_eagle, kind.mixes_block_sizes)),
            kind.prefix_caching,
        ]
        for kind in kvoxide.group_kinds()
    ]
    assert [list(row) for row in table("reference/groups.md", "kind of group")] == declared


def test_vllms_names_of_the_kinds_are_those_declared() -> None:
    rows = [
        (SPAN.findall(spec), kind.strip("`"))
        for spec, kind, *_ in table("reference/compatibility.md", "vLLM's spec")
    ]
    declared = [
        ([kind.vllm_spec, *written(kind.vllm_attributes)], kind.name)
        for kind in kvoxide.group_kinds()
    ]
    assert [row for row in rows if row[1]] == declared


def written(attributes: Mapping[str, str]) -> Iterator[str]:
    return (f'{name}="{value}"' for name, value in attributes.items())


def test_the_stub_names_the_kinds_and_their_sizes() -> None:
    stub = ast.parse((ROOT / "python" / "kvoxide" / "_core.pyi").read_text(encoding="utf-8"))
    (kinds,) = (
        ast.literal_eval(node.value.slice)
        for node in stub.body
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.target) == "GroupKind"
        and isinstance(node.value, ast.Subscript)
    )
    (sizes,) = (
        [ast.unparse(field.target) for field in node.body if isinstance(field, ast.AnnAssign)]
        for node in stub.body
        if isinstance(node, ast.ClassDef) and node.name == "GroupSizes"
    )
    declared = kvoxide.group_kinds()
    assert list(kinds) == [kind.name for kind in declared]
    named = {size for kind in declared for size in (*kind.required_sizes, *kind.optional_sizes)}
    assert set(sizes) == named


def test_errors() -> None:
    rows = table("reference/errors.md", "class")
    said = {name.strip("`"): SPAN.findall(bases) for name, bases, _ in rows}
    members = {name: getattr(kvoxide, name) for name in kvoxide.__all__}
    errors = {
        name: [base.__name__ for base in member.__bases__ if base is not KvoxideError]
        for name, member in members.items()
        if inspect.isclass(member) and issubclass(member, KvoxideError)
    }
    assert errors.pop("KvoxideError") == ["Exception"]
    assert said == errors


def test_the_version_is_the_last_release_of_the_changelog() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(\d.*)\] - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)
    assert releases[0] == kvoxide.__version__


def test_the_version_in_examples() -> None:
    text = (ROOT / "tests/bad_input.md").read_text(encoding="utf-8")
    named = re.findall(r'kvoxide"?:? "?(\d+\.\d+\.\d+)', text)
    assert named
    assert set(named) == {kvoxide.__version__}


def test_the_example_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["num_hit"] == 0
    assert len(names["full_ids"]) == len(names["window_ids"]) == 313
    assert names["manager"].usage == 0.0
