"""A page as HTML: one file with its style, its script, plotly.js and the plots' data inside."""

import base64
import hashlib
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from kvoxide.lab.output.colours import dark_colours
from kvoxide.lab.replay.page.document import Figure, Page

_FOLDER: Final = "templates"


def html_document(page: Page) -> bytes:
    """The page. Whatever text is in it stays text: it is escaped, and the page's policy lets no
    script run but the two that are its own."""
    environment = Environment(
        loader=PackageLoader("kvoxide.lab.replay.page", _FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    scripts = {"plotly": get_plotlyjs(), "page": _source(environment, "page.js")}
    numbers = _Numbers()
    text = environment.get_template("page.html").render(
        page=page,
        number=numbers,
        style=Markup(_source(environment, "page.css")),
        scripts={name: Markup(script) for name, script in scripts.items()},
        script_hashes=[_hash(script) for script in scripts.values()],
        data=lambda: {"plots": numbers.plots, "dark": dark_colours()},
    )
    # A file name need not be text.
    return text.encode(errors="replace")


class _Numbers:
    """Numbers the figures in the order in which they stand on the page."""

    def __init__(self) -> None:
        self.plots: list[dict[str, Any]] = []

    def __call__(self, figure: Figure) -> int:
        self.plots.append(figure.plot)
        return len(self.plots) - 1


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _hash(script: str) -> str:
    """Return the name of a script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
