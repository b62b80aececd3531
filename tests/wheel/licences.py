"""Write the licences of the crates that are linked into the compiled module.

``python -m tests.wheel.licences`` writes THIRD_PARTY_LICENSES.txt, which is a part of each wheel.
``--check`` fails if the file differs from what Cargo.lock asks for. Both need cargo, and the
sources of the crates or a registry.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "THIRD_PARTY_LICENSES.txt"
TARGETS: Final = tuple(
    f"{machine}-{system}"
    for machine in ("x86_64", "aarch64")
    for system in ("unknown-linux-gnu", "unknown-linux-musl", "apple-darwin")
)
CHOICE: Final = ("Apache-2.0", "MIT", "BSD-2-Clause", "Zlib", "BSL-1.0")
"""The licences under which crates are used. Of several that a crate offers, the first is chosen."""
# A crate under two licences keeps one file for each.
_FILE_NAMES: Final = {
    "MIT": ("LICENSE-MIT*", "LICENSE*", "LICENCE*", "COPYING*"),
    "BSD-2-Clause": ("LICENSE*", "LICENCE*", "COPYING*"),
    "Zlib": ("LICENSE-ZLIB*", "LICENSE*", "LICENCE*", "COPYING*"),
    "BSL-1.0": ("LICENSE*", "LICENCE*", "COPYING*"),
}
_HEAD: Final = """\
Licences of the code that is linked into kvoxide's compiled module

`python -m tests.wheel.licences` writes this file from Cargo.lock and the sources of the crates. If
a crate offers several licences, the first of these was chosen: {choice}.

Rust's standard library is linked too. It is used under Apache-2.0 (https://www.rust-lang.org/policies/licenses).
"""
_MIT: Final = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


class LicenceError(Exception):
    """Report a crate that is linked without a licence that this script knows how to fulfil."""


@dataclass(frozen=True)
class Crate:
    """Describe a linked crate."""

    name: str
    version: str
    expression: str
    authors: tuple[str, ...]
    folder: Path

    @property
    def title(self) -> str:
        """Return the name and the version."""
        return f"{self.name} {self.version}"


def chosen(expression: str) -> str:
    """Return the licence of an SPDX expression under which the crate is used."""
    offered = re.split(r" OR |/", expression.strip("()"))
    for licence in CHOICE:
        if licence in offered:
            return licence
    raise LicenceError(f"no licence of {', '.join(CHOICE)} in {expression!r}")


def linked_crates() -> list[Crate]:
    """Return the crates of other projects that any platform links, by name."""
    return sorted(
        (_crate(package) for package in _packages() if package["source"]),
        key=lambda crate: (crate.name, crate.version),
    )


def document(crates: list[Crate]) -> str:
    """Return the whole file."""
    by_text: dict[tuple[str, str], list[str]] = defaultdict(list)
    apache = []
    for crate in crates:
        licence = _choose(crate)
        if licence == "Apache-2.0":
            apache.append(crate.title)
            texts = [text for path in _find(crate, "NOTICE*") if (text := _read(path))]
            licence = "notice of Apache-2.0"
        else:
            texts = [_text(crate, licence)]
        for text in texts:
            by_text[licence, text].append(crate.title)
    parts = [
        _HEAD.format(choice=", ".join(CHOICE)),
        _section("Apache-2.0", apache, "The text is in LICENSE."),
    ]
    parts += [_section(licence, names, text) for (licence, text), names in by_text.items()]
    return "\n".join(parts)


def _section(licence: str, names: list[str], text: str) -> str:
    line = "-" * 80
    return f"{line}\n{licence}: {', '.join(names)}\n{line}\n\n{text}\n"


def _choose(crate: Crate) -> str:
    try:
        return chosen(crate.expression)
    except LicenceError as error:
        raise LicenceError(f"{crate.title}: {error}") from None


def _text(crate: Crate, licence: str) -> str:
    for pattern in _FILE_NAMES[licence]:
        for path in _find(crate, pattern):
            return _read(path)
    if licence == "MIT" and crate.authors:
        return f"Copyright (c) {', '.join(crate.authors)}\n\n{_MIT}"
    raise LicenceError(f"{crate.title}: no file with the text of {licence} in its sources")


def _find(crate: Crate, pattern: str) -> list[Path]:
    return sorted(path for path in crate.folder.glob(pattern) if path.is_file())


def _read(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _packages() -> list[dict[str, Any]]:
    """Return the metadata of all packages that are linked for one of the targets."""
    linked = set()
    for target in TARGETS:
        tree = _cargo(
            *("tree", "--locked", "--package", "kvoxide-python", "--features", "extension-module"),
            *("--edges", "normal,no-proc-macro", "--prefix", "none", "--target", target),
            *("--format", "{p}"),
        )
        linked |= {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    metadata = json.loads(_cargo("metadata", "--locked", "--format-version", "1"))
    found = [it for it in metadata["packages"] if (it["name"], f"v{it['version']}") in linked]
    assert len(found) == len(linked), linked
    return found


def _crate(package: dict[str, Any]) -> Crate:
    return Crate(
        package["name"],
        package["version"],
        package["license"] or "",
        tuple(package["authors"]),
        Path(package["manifest_path"]).parent,
    )


def _cargo(*arguments: str) -> str:
    command = ["cargo", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, text=True, capture_output=True).stdout


def main(arguments: list[str]) -> int:
    """Write or check the file. Return the exit code."""
    try:
        text = document(linked_crates())
    except LicenceError as error:
        print(f"tests.wheel.licences: {error}", file=sys.stderr)
        return 1
    if arguments == ["--check"]:
        if FILE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{FILE.name} is out of date; run python -m tests.wheel.licences", file=sys.stderr)
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
