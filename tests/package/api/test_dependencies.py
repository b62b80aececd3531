"""Tests that docs/reference/dependencies.md names exactly kvoxide's dependencies, and which part
needs each."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.testing.paths import DOCS, ROOT

NAME = re.compile(r"[A-Za-z0-9_-]+")


def table(title: str) -> dict[str, set[str]]:
    """Return for each package the parts that need it, from the document."""
    text = (DOCS / "reference/dependencies.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    found: dict[str, set[str]] = {}
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith(("| crate ", "| package ")):
            name, who, why = (cell.strip() for cell in line.strip("|").split("|"))
            assert why, line
            assert name not in found
            found[name] = set(who.split(", "))
    return found


def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_crates() -> None:
    asked: dict[str, set[str]] = defaultdict(set)
    manifests = sorted((ROOT / "rust").glob("*/Cargo.toml"))
    assert len(manifests) >= 4
    for path in manifests:
        manifest, folder = read(path), path.parent.name
        kinds = {"dependencies": folder, "dev-dependencies": f"{folder} tests"}
        assert manifest.keys().isdisjoint({"build-dependencies", "target"})
        for kind, who in kinds.items():
            for name in manifest.get(kind, {}):
                if not name.startswith("kvoxide-"):
                    asked[name].add(who)
    assert table("Crates") == dict(asked)


def test_python_packages() -> None:
    project = read(ROOT / "pyproject.toml")
    lists = {
        "build": project["build-system"]["requires"],
        "run": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
    }
    asked: dict[str, set[str]] = defaultdict(set)
    for who, requirements in lists.items():
        for requirement in requirements:
            name = NAME.match(requirement)
            assert name is not None
            if name[0] != "kvoxide":
                asked[name[0]].add(who)
    assert table("Python packages") == dict(asked)


def test_packages_of_the_site() -> None:
    text = (DOCS / "reference/dependencies.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Site\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    pinned = (ROOT / "tests/requirements-docs.txt").read_text(encoding="utf-8")
    asked, _, _ = pinned.partition("# What these ask for in turn.")
    named = re.findall(r"^\| ([\w-]+) \| .+ \|$", section, re.MULTILINE)
    assert sorted(named) == sorted(["package", *re.findall(r"^([\w-]+)==", asked, re.MULTILINE)])


def test_packages_of_the_site_and_of_the_tests_have_the_same_versions() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / "tests" / name).read_text(encoding="utf-8")
        return dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))

    site, tests = pins("requirements-docs.txt"), pins("requirements.txt")
    assert {name: site[name] for name in site.keys() & tests.keys()} == {
        name: tests[name] for name in site.keys() & tests.keys()
    }
