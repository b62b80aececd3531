"""The files for GitHub, PyPI and other services agree with the project: commands, versions and
addresses. ``tests/run.sh lint`` checks the same files against their published schemas."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kvoxide
import pytest
import yaml
from kvoxide.cli import main
from kvoxide.vllm.environment.releases import RELEASES

from tests.testing.paths import ROOT
from tests.wheel import licences, readme, sbom

GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: path for path in sorted((GITHUB / "workflows").glob("*.yml"))}
FORMS = sorted(it for it in GITHUB.glob("ISSUE_TEMPLATE/*.yml") if it.stem != "config")
SERVICES = sorted(path for path in GITHUB.rglob("*") if path.is_file())
PINNED = re.compile(r"uses: ([\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$")
VERB = re.compile(r"tests/run\.sh ?([a-z]+)?")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(workflow: str) -> dict[str, Any]:
    return dict(load(WORKFLOWS[workflow])["jobs"])


def matrix(workflow: str, job: str) -> Any:
    return jobs(workflow)[job]["strategy"]["matrix"]


def verbs() -> set[str]:
    """Return the words that tests/run.sh takes."""
    text = (ROOT / "tests/run.sh").read_text(encoding="utf-8")
    (cases,) = re.findall(r"^        ([a-z |]+)\) \"\$@\" ;;$", text, re.MULTILINE)
    return {*str(cases).split(" | "), "long"}


def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"])


def steps(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from job.get("steps", [])


def test_workflows_run_every_part_of_the_tests() -> None:
    run = [step["run"] for job in jobs("tests").values() for step in steps(job) if "run" in step]
    named = {match[1] for command in run for match in VERB.finditer(command)}
    assert named == verbs() - {"quick", "long"}


def test_the_last_job_waits_for_all_others() -> None:
    every = jobs("tests")
    assert every.pop("passed")["needs"] == list(every)


def test_recipes_are_the_parts_of_the_tests() -> None:
    named = VERB.findall((ROOT / "justfile").read_text(encoding="utf-8"))
    assert set(filter(None, named)) == verbs()


def test_each_function_of_a_script_is_defined_once() -> None:
    for path in ROOT.glob("tests/*.sh"):
        found = re.findall(r"^(\w+)\(\) \{", path.read_text("utf-8"), re.MULTILINE)
        assert sorted(found) == sorted(set(found)), path
        assert path.name != "run.sh" or verbs() - {"long"} <= set(found)


def test_the_vllm_jobs_are_the_supported_releases() -> None:
    rows = matrix("tests", "vllm")["include"]
    newest, *older = RELEASES
    expected = {newest: " and ".join(f"not {release}" for release in older)}
    expected |= {release: release for release in older}
    assert {row["release"]: row["tests"] for row in rows} == expected


def test_the_versions_of_python_are_those_of_the_package() -> None:
    heads = "Programming Language :: Python :: 3."
    claimed = [it.removeprefix(heads) for it in project()["classifiers"] if it.startswith(heads)]
    assert [f"3.{minor}" for minor in claimed] == matrix("tests", "package")["python"]
    script = (ROOT / "tests/wheel.sh").read_text(encoding="utf-8")
    (tested,) = re.findall(r"interpreters=\((python3[^)]*)\)", script)
    assert tested.split() == [f"python3.{minor}" for minor in claimed]
    assert project()["requires-python"] == f">=3.{claimed[0]}"


def test_wheels_are_built_for_the_targets_whose_licences_are_collected() -> None:
    triples = {"manylinux": "unknown-linux-gnu", "musllinux": "unknown-linux-musl"}
    rows = matrix("wheels", "wheel")["include"]
    built = [f"{row['machine']}-{triples.get(row['platform'], 'apple-darwin')}" for row in rows]
    assert sorted(built) == sorted(licences.TARGETS)
    release = WORKFLOWS["release"].read_text(encoding="utf-8")
    assert f"-eq {len(rows) + 1}\n" in release, "the source distribution and one file per platform"


def test_actions_are_pinned_by_one_commit_each() -> None:
    pins: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in (*WORKFLOWS.values(), *GITHUB.glob("actions/*/action.yml")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "uses: " in line and "uses: ./" not in line:
                match = PINNED.search(line)
                assert match, f"{path.name}: {line.strip()}"
                pins[match[1]].add((match[2], match[3]))
    assert len(pins) >= 6
    assert {name: len(commits) for name, commits in pins.items()} == dict.fromkeys(pins, 1)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_only_the_publishing_job_may_write(name: str) -> None:
    workflow = load(WORKFLOWS[name])
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert "group" in workflow["concurrency"]
    for job_name, job in workflow["jobs"].items():
        granted = {right for right, level in job.get("permissions", {}).items() if level == "write"}
        publishes = (name, job_name) == ("release", "publish")
        assert granted == ({"id-token", "attestations"} if publishes else set())


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_name_commands_that_exist(path: Path) -> None:
    named = re.findall(r"`kvoxide (\w+)", path.read_text(encoding="utf-8"))
    assert "doctor" in named
    assert set(named) <= set(main.list_commands(click.Context(main)))


def test_addresses_are_in_the_repository_that_cargo_names() -> None:
    address = readme.repository()
    citation = load(ROOT / "CITATION.cff")
    assert citation["repository-code"] == address
    assert project()["urls"]["Repository"] == address
    for path in (ROOT / "pyproject.toml", *SERVICES):
        for found in re.findall(r"https://github\.com/[\w./-]+", path.read_text(encoding="utf-8")):
            assert found.startswith(address), path.name


def test_the_citation_is_of_this_version() -> None:
    citation = load(ROOT / "CITATION.cff")
    assert citation["version"] == kvoxide.__version__ == readme.version()
    assert citation["license"] == project()["license"]


def test_links_of_the_package_page_are_absolute() -> None:
    page = readme.with_absolute_links((ROOT / "README.md").read_text("utf-8"), "v1.2.3")
    outside = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", outside)
    assert len(targets) > 10
    assert [it for it in targets if not it.startswith(("https://", "#"))] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/vllm.md#shadow)", "[a]({}/blob/v1/docs/vllm.md#shadow)"),
        ("![a](docs/plot.svg)", "![a]({}/raw/v1/docs/plot.svg)"),
        ("[a](#check) [b](https://x.org) [c](mailto:a@b.c)",) * 2,
        ("```\n[a](b.md)\n```\n[a](b.md)", "```\n[a](b.md)\n```\n[a]({}/blob/v1/b.md)"),
    ],
)
def test_links_become_absolute(text: str, expected: str) -> None:
    assert readme.with_absolute_links(text, "v1") == expected.format(readme.repository())


@pytest.mark.parametrize(
    ("expression", "licence"),
    [
        ("MIT OR Apache-2.0", "Apache-2.0"),
        ("Unlicense/MIT", "MIT"),
        ("(Zlib OR MIT)", "MIT"),
        ("BSL-1.0", "BSL-1.0"),
    ],
)
def test_a_licence_is_chosen(expression: str, licence: str) -> None:
    assert licences.chosen(expression) == licence


@pytest.mark.parametrize("expression", ["", "GPL-3.0-only", "MIT AND Unicode-3.0"])
def test_other_licences_are_an_error(expression: str) -> None:
    with pytest.raises(licences.LicenceError, match=re.escape(repr(expression))):
        licences.chosen(expression)


def test_a_crate_without_a_text_is_an_error(tmp_path: Path) -> None:
    crate = licences.Crate("wide", "1.0.0", "Zlib", ("Ann",), tmp_path)
    with pytest.raises(licences.LicenceError, match=r"^wide 1\.0\.0: no file with"):
        licences.document([crate])
    (tmp_path / "LICENSE").write_text("Text of Zlib.")
    assert "Zlib: wide 1.0.0\n" in licences.document([crate])
    assert "Text of Zlib.\n" in licences.document([crate])


def test_the_bill_of_materials_has_no_folder_of_the_build(tmp_path: Path) -> None:
    bill = {"ref": [f"path+{tmp_path.as_uri()}/rust/core#1.0"], "n": 1, "url": "file://."}
    expected = {"ref": ["path+file:///kvoxide/rust/core#1.0"], "n": 1, "url": "file://."}
    assert sbom.without_folder(bill, tmp_path) == expected
