"""Define the options that name result files. They refuse a file that cannot be written."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from kvoxide._core import ConfigError
from kvoxide._install_hints import with_extra
from kvoxide.lab.options import Command, parsed_with
from kvoxide.lab.output.figures import FORMATS
from kvoxide.lab.output.files import check_writable

_PACKAGES: Final = ("plotly", "jinja2")


def output_option(name: str, metavar: str, text: str) -> Callable[[Command], Command]:
    """An option that names a file to write, refused at once if it cannot be written."""
    return click.option(
        name,
        f"{name.strip('-').replace('-', '_')}_path",
        metavar=metavar,
        callback=parsed_with(checked_output),
        help=text,
    )


def plot_option(text: str) -> Callable[[Command], Command]:
    """``--plot``, whose ending says the format."""
    return click.option(
        "--plot",
        "plot_path",
        metavar="FILE.png",
        callback=parsed_with(_checked_plot),
        help=f"{text} File endings: {', '.join(FORMATS)}.",
    )


quiet_option = click.option(
    "--quiet", is_flag=True, help="Print only errors; write results only to files."
)


def checked_output(text: str) -> Path:
    """The file to write. Raises :class:`OutputError` if it cannot be written."""
    path = Path(text)
    check_writable(path)
    return path


def _checked_plot(text: str) -> Path:
    if Path(text).suffix.lower() not in FORMATS:
        raise ConfigError(f"{text!r} must end in one of {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"plots need matplotlib; {with_extra('cli')}")
    return checked_output(text)


def _checked_page(text: str) -> Path:
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"pages need {package}; {with_extra('html')}")
    return checked_output(text)


html_option = click.option(
    "--html",
    "html_path",
    metavar="FILE.html",
    callback=parsed_with(_checked_page),
    help="Write settings, tables and plots as one HTML page that works offline.",
)
