"""Make the README's links absolute: PyPI shows it on a page without the repository's files.

``python -m tests.wheel.readme FOLDER`` rewrites FOLDER/README.md, a copy of the checkout.
"""

import sys
import tomllib
from pathlib import Path
from typing import Final

from tests.testing.markdown import with_links

ROOT: Final = Path(__file__).parents[2]


def repository() -> str:
    """Return the address of the repository, which Cargo.toml names."""
    return str(_workspace()["repository"])


def version() -> str:
    """Return the version of this checkout."""
    return str(_workspace()["version"])


def with_absolute_links(text: str, ref: str) -> str:
    """Return a page of the repository's top folder with links to the files of a tag or branch."""
    return with_links(text, lambda path, is_image: address(path, ref, is_image=is_image))


def address(path: str, ref: str, *, is_image: bool = False) -> str:
    """Return the address of a file of the repository in a tag or branch."""
    return f"{repository()}/{'raw' if is_image else 'blob'}/{ref}/{path}"


def _workspace() -> dict[str, object]:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return dict(manifest["workspace"]["package"])


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "README.md"
    page.write_text(with_absolute_links(page.read_text("utf-8"), f"v{version()}"), "utf-8")
