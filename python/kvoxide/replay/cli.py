"""The ``kvoxide`` command."""

from typing import Any

try:
    import click
    import rich  # noqa: F401
except ModuleNotFoundError as error:
    raise SystemExit(f"kvoxide: {error.name} is missing; pip install 'kvoxide[cli]'") from None

from kvoxide._core import KvoxideError, __version__
from kvoxide.replay.experiment_command import experiment
from kvoxide.replay.replay_command import replay

INTERRUPTED = 130


class _Main(click.Group):
    """Turns what commands raise into a message and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except KvoxideError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvoxide")
def main() -> None:
    """KV-cache block manager for LLM inference servers."""


main.add_command(replay)
main.add_command(experiment)
