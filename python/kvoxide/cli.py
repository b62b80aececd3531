"""The ``kvoxide`` command. It imports a command's module when the command is called. So ``doctor``
runs even if the compiled module, which the other commands need, is missing."""

import importlib
from typing import Any

from kvoxide._install_hints import with_extra

try:
    import click
    import rich  # noqa: F401
except ModuleNotFoundError as error:
    raise SystemExit(
        f"kvoxide: the package {error.name} is not installed; {with_extra('cli')}"
    ) from None

SECTIONS = {
    "For a vLLM server": {
        "doctor": "kvoxide.server_commands",
        "shadow": "kvoxide.server_commands",
    },
    "Laboratory (needs no server)": {
        "replay": "kvoxide.lab.replay.cli.replay_command",
        "experiment": "kvoxide.lab.replay.cli.experiment_command",
        "formats": "kvoxide.lab.replay.cli.formats_command",
        "why": "kvoxide.lab.why.command",
        "plan": "kvoxide.lab.plan.command",
        "verify": "kvoxide.lab.verify.command",
        "bench": "kvoxide.lab.bench.command",
    },
}
"""The module of each command, in the sections and the order of ``kvoxide --help``."""
COMMANDS = {name: module for section in SECTIONS.values() for name, module in section.items()}
INTERRUPTED = 130
# Columns to the left of, and between, the two columns of a list of commands.
_MARGINS = 6


class _Failure(click.ClickException):
    """An error message with its own exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


class _Main(click.Group):
    """Imports commands, and turns their exceptions into a message and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = formatter.width - max(map(len, COMMANDS)) - _MARGINS
        for title, names in SECTIONS.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(title):
                formatter.write_dl(
                    [(name, it.get_short_help_str(width)) for name, it in commands.items() if it]
                )

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if _is_on_purpose(error):
                raise _Failure(str(error), getattr(error, "exit_status", 1)) from error
            raise


def _is_on_purpose(error: Exception) -> bool:
    try:
        from kvoxide._core import KvoxideError
    except ImportError:
        # Only doctor runs without the compiled module. The ImportError says enough.
        return isinstance(error, ImportError)
    return isinstance(error, KvoxideError)


def _print_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from kvoxide._core import __version__

        click.echo(f"kvoxide, version {__version__}")
        context.exit()


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """KV-cache block manager for LLM inference servers."""
