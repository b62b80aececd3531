"""``kvoxide doctor`` and ``kvoxide shadow``.

No server imports this module: ``doctor`` reads a model with the laboratory."""

import json
from pathlib import Path

import click

from kvoxide.lab.model_groups import read_model_groups
from kvoxide.vllm.doctor import Diagnosis, ModelError, ModelGroup, ModelGroups, diagnose
from kvoxide.vllm.environment import releases
from kvoxide.vllm.shadow import (
    Json,
    Make,
    Recording,
    RecordingError,
    engine_alone,
    in_vllm,
    replay,
    stock_in_vllm,
)

_MAX_SHOWN = 2_000


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_context
def shadow(context: click.Context, file: Path) -> None:
    """Play a FILE that a server with KVOXIDE=shadow wrote, and show the difference in it.

    Plays the calls on kvoxide's engine. If the vLLM of the file is installed, also plays them on
    kvoxide's manager in vLLM and on vLLM's own manager. Exit code 1 means that kvoxide still
    differs, 0 that it does not.
    """
    try:
        recording = Recording.read(file)
        _print_recording(recording)
        shows = [_play(name, recording, make) for name, make in _players(recording).items()]
        stock = _stock(recording)
        if stock is not None and _play("vLLM's own manager", recording, stock):
            click.echo("vLLM's own manager differs from the file, so the file is incomplete.")
            click.echo("Please report this, with the file.")
    except (RecordingError, OSError) as error:
        raise click.ClickException(str(error)) from error
    context.exit(1 if any(shows) else 0)


def _print_recording(recording: Recording) -> None:
    configuration, difference = recording.configuration, recording.difference
    click.echo(
        f"Recorded by kvoxide {configuration['kvoxide']} with vLLM {configuration['vllm']}: "
        f"{len(recording.calls)} calls, {configuration['num_blocks']} blocks, "
        f"{len(configuration['groups'])} groups"
    )
    click.echo(f"Difference in the {difference['what']} of {_shown(difference['call'])}")
    click.echo(f"  vLLM:    {_shown(difference['vllm'])}")
    click.echo(f"  kvoxide: {_shown(difference['kvoxide'])}")


def _players(recording: Recording) -> dict[str, Make]:
    players: dict[str, Make] = {"kvoxide's engine": engine_alone}
    version = recording.configuration["vllm"]
    if releases.installed_version() == version:
        players[f"kvoxide in vLLM {version}"] = in_vllm()
    return players


def _stock(recording: Recording) -> Make | None:
    version, installed = recording.configuration["vllm"], releases.installed_version()
    if installed == version:
        return stock_in_vllm
    found = f"vLLM {installed} is installed" if installed else "vLLM is not installed"
    click.echo(f"Not played in vLLM: the file was recorded with vLLM {version}, but {found}")
    return None


def _play(name: str, recording: Recording, make: Make) -> bool:
    """Print how a manager does. Return whether it differs from vLLM's manager in the recording."""
    finding = replay(recording, make)
    if finding is None:
        click.echo(f"{name}: all {len(recording.calls)} calls have vLLM's results")
        return False
    click.echo(f"{name}: call {finding.index + 1} differs: {_shown(finding.call)}")
    click.echo(f"  result: {_shown(finding.outcome)}")
    return True


def _class_name(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    if value is None:
        return None
    parts = value.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise click.BadParameter(f"{value!r} does not have the form MODULE.CLASS")
    return value


def _json_object(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Check that an option is a JSON object with the name of a connector."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("kv_connector"), str):
        raise click.BadParameter(
            f"{value!r} does not name a connector. Give an object such as "
            '{"kv_connector": "NixlConnector"}'
        )
    return value


@click.command()
@click.option(
    "--model",
    type=click.Path(exists=True, path_type=Path),
    help="Directory of the model, or its config.json.",
)
@click.option(
    "--scheduler-cls",
    metavar="MODULE.CLASS",
    callback=_class_name,
    help="The server's --scheduler-cls, to check the class.",
)
@click.option(
    "--kv-transfer-config",
    "transfer",
    metavar="JSON",
    callback=_json_object,
    help="The server's --kv-transfer-config, to check its connectors.",
)
@click.option(
    "--ask-vllm/--no-ask-vllm",
    "ask",
    default=None,
    envvar="KVOXIDE_ASK_VLLM",
    help="Read the model with the installed vLLM.  [default: if vLLM is installed]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(
    context: click.Context,
    model: Path | None,
    scheduler_cls: str | None,
    transfer: str | None,
    ask: bool | None,
    as_json: bool,
) -> None:
    """Check whether a vLLM server in this environment would use kvoxide.

    Exit code 0 means that it would. --model and --scheduler-cls check a server with this model and
    this scheduler. --kv-transfer-config lists how its connectors use the block pool, and their
    setting for kvoxide.
    """
    try:
        groups = None if model is None else read_model_groups(model, ask=ask)
    except ModelError as error:
        raise click.ClickException(str(error)) from error
    diagnosis = diagnose(groups, scheduler_cls, transfer=transfer)
    if as_json:
        click.echo(json.dumps(diagnosis.as_json(), indent=2))
    else:
        _print_diagnosis(diagnosis)
    context.exit(0 if diagnosis.ok else 1)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    for name, version in diagnosis.versions.items():
        click.echo(f"{name:16} {version or 'not found'}")
    for check in diagnosis.checks:
        click.echo(f"{'ok     ' if check.ok else 'PROBLEM'} {check.name}: {check.found}")
        if not check.ok:
            click.echo(f"        -> {check.remedy}")
    if diagnosis.model is not None:
        _print_model(diagnosis.model)
    verdict = "would" if diagnosis.ok else "would not"
    click.echo(f"A vLLM server in this environment {verdict} use kvoxide.")


def _print_model(model: ModelGroups) -> None:
    notes = model.notes if model.groups else ()
    for line in (*map(_described, model.groups), *notes):
        click.echo(line if line.startswith(" ") else f"        {line}")
    if model.hit_tokens is not None:
        click.echo(f"        Hits end at multiples of {model.hit_tokens:,} tokens.")


def _described(group: ModelGroup) -> str:
    where = "kvoxide" if group.is_native else "vLLM's own manager"
    return f"        {group.kind} ({group.layers} layers): {where} [{group.because}]"


def _shown(value: Json) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} ..."
