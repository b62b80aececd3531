"""``kvoxide verify``."""

from pathlib import Path

import click

from kvoxide.lab.verify import verify as run


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    default=60.0,
    show_default=True,
    help="How long to compare.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Repeat the run that printed this seed.")
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play a difference again that a run wrote down, and nothing else.",
)
@click.pass_context
def verify(context: click.Context, seconds: float, seed: int | None, replay: Path | None) -> None:
    """Compare kvoxide with the vLLM that is installed here, whatever release it is.

    Random traffic goes to vLLM's own manager, scheduler and block hashers and to kvoxide's. Without
    a difference, a certificate is written, with which KVOXIDE_ACCEPT=verified lets servers of this
    vLLM run on kvoxide. Exit code 1: something differs; 3: nothing can be said.
    """
    arguments = [f"--seconds={seconds}"]
    arguments += [] if seed is None else [f"--seed={seed}"]
    arguments += [] if replay is None else [f"--replay={replay}"]
    context.exit(run(arguments))
