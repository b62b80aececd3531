"""Make the README's links absolute: PyPI shows it on a page without the repository's files.

``python -m tests.wheel.readme FOLDER`` rewrites FOLDER/README.md, a copy of the checkout.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


def repository() -> str:
    """Return the address of the repository, which Cargo.toml names."""
    return str(_workspace()["repository"])


def version() -> str:
    """Return the version of this checkout."""
    return str(_workspace()["version"])


def with_absolute_links(text: str, ref: str) -> str:
    """Return a page of the repository's top folder with links to the files of a tag or branch."""
    parts = _FENCE.split(text)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda link: _absolute(link, ref), part)
        for part in parts
    )


def _absolute(link: re.Match[str], ref: str) -> str:
    image, text, path = link.groups()
    return f"{image}{text}({repository()}/{'raw' if image else 'blob'}/{ref}/{path})"


def _workspace() -> dict[str, object]:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return dict(manifest["workspace"]["package"])


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "README.md"
    page.write_text(with_absolute_links(page.read_text("utf-8"), f"v{version()}"), "utf-8")
