"""The option ``--html``, which is refused before anything runs if the packages are missing."""

import importlib.util
from pathlib import Path
from typing import Final

import click

from kvoxide._core import ConfigError
from kvoxide.replay.options import checked_output, parsed_with

_PACKAGES: Final = ("plotly", "jinja2")


def _checked_page(text: str) -> Path:
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"pages need {package}; pip install 'kvoxide[html]'")
    return checked_output(text)


html_option = click.option(
    "--html",
    "html_path",
    metavar="FILE.html",
    callback=parsed_with(_checked_page),
    help="Write settings, tables and plots as one page, which works without a network.",
)
