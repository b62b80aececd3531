"""``kvoxide why``: why the prompts of a recorded server were hit or not."""

from pathlib import Path
from typing import Final

import click

from kvoxide.lab.options import exclusive, parsed_with, positive
from kvoxide.lab.output.files import check_distinct, json_document, replacing
from kvoxide.lab.output.options import output_option, quiet_option
from kvoxide.lab.replay.input import Groups, parse_groups
from kvoxide.lab.why.explained import explain
from kvoxide.lab.why.report import print_report, print_requests, record, request_records
from kvoxide.lab.why.selection import Moment, Selection

_TIME: Final = "90s, 1h30m, 14:30 or 2026-11-29T14:30"


@click.command()
@click.argument("recording", metavar="RECORDING")
@click.option(
    "--request",
    type=click.IntRange(min=0, max=2**32 - 1),
    metavar="N",
    help="Explain only the request with this number.",
)
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    callback=parsed_with(Moment.parse),
    help=f"Leave out requests that arrived earlier, such as {_TIME} (UTC).",
)
@click.option(
    "--to",
    "end",
    metavar="TIME",
    callback=parsed_with(Moment.parse),
    help="Leave out requests that arrived at this time or later.",
)
@click.option(
    "--hour",
    metavar="TIME",
    callback=parsed_with(Moment.parse),
    help="Explain only the hour that begins at this time, such as 14.",
)
@click.option(
    "--most",
    type=positive,
    default=10,
    show_default=True,
    help="Number of requests in the list of the largest losses.",
)
@click.option(
    "--groups",
    metavar="GROUPS",
    callback=parsed_with(parse_groups),
    help="KV cache groups for the replay, if the recording has none; as for kvoxide replay.",
)
@click.option(
    "--replay",
    "always_replay",
    is_flag=True,
    help="Compute all outcomes with a replay, even if the server recorded them.",
)
@click.option("--skip-bad", is_flag=True, help="Count damaged lines and leave them out.")
@output_option("--json", "FILE", "Write outcomes, hours and the largest losses.")
@quiet_option
def why(
    recording: str,
    request: int | None,
    begin: Moment | None,
    end: Moment | None,
    hour: Moment | None,
    most: int,
    groups: Groups | None,
    always_replay: bool,
    skip_bad: bool,
    json_path: Path | None,
    quiet: bool,
) -> None:
    """Explain why prompts of a RECORDING were hit or not.

    RECORDING is the folder that a server wrote with KVOXIDE_RECORD, or one of its files of
    requests. Each prompt token has one of ten outcomes. The table says how many tokens had which,
    which reason costs most, and which setting avoids it. Outcomes that the server did not record
    come from a replay in the server's own steps, with its own policy.
    """
    _check_exclusive(request, begin, end, hour)
    check_distinct(recording, [json_path])
    explained = explain(
        recording, groups=groups, skip_bad=skip_bad, always_replay=always_replay, quiet=quiet
    )
    selected = Selection(request, begin, end, hour).of(explained)
    if json_path is not None:
        written = record(selected, most)
        if request is not None:
            written["selected"] = request_records(selected)
        with replacing(json_path) as stream:
            stream.write(json_document(written))
    if quiet:
        return
    for note in selected.notes:
        click.echo(note, err=True)
    if request is None:
        print_report(selected, most)
    else:
        print_requests(selected)


def _check_exclusive(
    request: int | None, begin: Moment | None, end: Moment | None, hour: Moment | None
) -> None:
    spans = {"--from": begin, "--to": end, "--hour": hour}
    given = [name for name, moment in spans.items() if moment is not None]
    if request is not None and given:
        raise exclusive("--request", given[0])
    if hour is not None and given != ["--hour"]:
        raise exclusive("--hour", given[0])
