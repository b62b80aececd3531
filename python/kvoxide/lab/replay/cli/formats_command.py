"""``kvoxide formats``: the formats of traces."""

import click

from kvoxide._core import Trace

# Kinds of files in which lines may come, whatever their format.
_FILES = (
    (
        "JSON lines, one JSON array, one JSON object",
        "text in UTF-8, or in UTF-16 with a byte order mark",
    ),
    ("CSV, TSV, and tables with ; or |", "a header names the columns"),
    ("Parquet, Arrow and Excel workbooks", "need kvoxide[tables]"),
    ("gzip, zstd, xz, bzip2", "recognised by content"),
    ("zip", "an archive with one trace"),
)


@click.command()
@click.argument("name", required=False)
def formats(name: str | None) -> None:
    """List the trace formats that kvoxide recognises, with an example of each.

    With NAME, print only the example of that format, as a file to try.
    """
    details = Trace.describe_formats()
    if name is not None:
        examples = {found: example for found, _, _, example, _ in details}
        if name not in examples:
            raise click.BadParameter(f"{name!r} is not a format; it can be {', '.join(examples)}")
        click.echo(examples[name], nl=False)
        return
    for title, is_shown in (("Replayed", True), ("Recognised, but not replayed", False)):
        click.echo(f"{title}:\n")
        for found, about, sign, example, is_played in details:
            if is_played is is_shown:
                _print(found, about, sign, example)
    click.echo("Any other table or JSON lines: name the columns or fields with --columns, such as")
    click.echo("  --columns input=prompt_tokens,output=completion_tokens,time=start,session=chat\n")
    click.echo("Files:")
    for kind, note in _FILES:
        click.echo(f"  {kind}: {note}")


def _print(name: str, about: str, sign: str, example: str) -> None:
    click.echo(f"{name}: {about}")
    click.echo(f"  recognised by: {sign}")
    for line in example.splitlines():
        click.echo(f"    {line}")
    click.echo()
