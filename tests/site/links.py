"""Point links that leave docs at the repository: the site has the pages of docs only."""

import os.path
from pathlib import Path
from typing import Any

from tests.testing.markdown import with_links
from tests.testing.paths import DOCS, ROOT
from tests.wheel.readme import address


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page for the site. mkdocs calls this function for each page."""
    return for_site(markdown, DOCS / page.file.src_uri)


def for_site(text: str, page: Path) -> str:
    """Return the text of a page with links for the site."""

    def change(target: str, is_image: bool) -> str:
        name, mark, anchor = target.partition("#")
        path = Path(os.path.normpath(page.parent / name))
        if path.is_relative_to(DOCS) and path.suffix:
            return target
        relative = path.relative_to(ROOT).as_posix()
        return address(relative, "main", is_image=is_image) + mark + anchor

    return with_links(text, change)
