"""``--on``, the option of every command that does many runs."""

import click

from kvoxide.lab.options import parsed_with
from kvoxide.lab.replay.run.execution.place import parse_place

on_option = click.option(
    "--on",
    "place",
    metavar="PLACE",
    callback=parsed_with(parse_place),
    help="Do the runs on a Ray cluster: ray finds or starts one; ray://HOST:PORT or HOST:PORT names"
    " one.  [default: the cores of this machine]",
)
