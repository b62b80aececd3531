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
    help="Seconds to compare.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Repeat the run that printed this seed.")
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Only play the difference in this file, which an earlier run wrote.",
)
@click.pass_context
def verify(context: click.Context, seconds: float, seed: int | None, replay: Path | None) -> None:
    """Compare kvoxide with the installed vLLM, also if it is not a known release.

    Sends random traffic to the managers, schedulers and block hashers of vLLM and of kvoxide. If
    no call differs, writes a certificate. With KVOXIDE_ACCEPT=verified, servers with this vLLM then
    use kvoxide. Exit code 1 means that a call differs, 3 that the comparison was not possible.
    """
    arguments = [f"--seconds={seconds}"]
    arguments += [] if seed is None else [f"--seed={seed}"]
    arguments += [] if replay is None else [f"--replay={replay}"]
    context.exit(run(arguments))
