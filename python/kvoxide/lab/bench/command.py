"""``kvoxide bench``: measures how fast the manager is on this machine."""

import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kvoxide._core import __version__
from kvoxide.lab.bench.comparison import Measurement, measure
from kvoxide.lab.bench.layouts import LAYOUTS, MILLION
from kvoxide.lab.bench.plots import draw_measurements
from kvoxide.lab.bench.report import print_measurements, rows_of
from kvoxide.lab.bench.traffic import Effort
from kvoxide.lab.bench.vllm_release import UsableVllm, find_vllm
from kvoxide.lab.output.figures import save
from kvoxide.lab.output.files import check_distinct, json_document, replacing
from kvoxide.lab.output.options import output_option, plot_option, quiet_option
from kvoxide.vllm.environment import SettingsError

MIN_TOKENS = 2048
MAX_TOKENS = 4 * MILLION


@click.command()
@click.option(
    "--layout",
    "layouts",
    type=click.Choice(list(LAYOUTS)),
    multiple=True,
    help="Measure only this layout; repeat for several.  [default: all]",
)
@click.option(
    "--tokens",
    type=click.IntRange(MIN_TOKENS, MAX_TOKENS),
    default=MILLION,
    show_default=True,
    help="Length of the long prompt in tokens.",
)
@click.option("--host", is_flag=True, help="Measure the host tier instead of the manager.")
@click.option("--alone", is_flag=True, help="Measure only kvoxide, even if vLLM is installed.")
@output_option("--json", "FILE", "Write all times and ratios.")
@plot_option("Plot the ratios; without vLLM, plot the times.")
@quiet_option
def bench(
    layouts: tuple[str, ...],
    tokens: int,
    host: bool,
    alone: bool,
    json_path: Path | None,
    plot_path: Path | None,
    quiet: bool,
) -> None:
    """Time each call of the manager, and compare it with the installed vLLM's manager.

    A layout has the KV cache groups of a model. full has full attention. gemma has full attention
    and five sliding windows. dsv4 has the four groups of DeepSeek-V4. qwen3-next has full attention
    and three groups of recurrent states. deepseek-v4.1 has the groups of that model. Both managers
    serve the same requests alternately, in one process. Block hashes are computed beforehand.
    Without a supported vLLM, only kvoxide is measured.
    """
    check_distinct("", [json_path, plot_path])
    vllm = UsableVllm(None, "left out by --alone") if alone else find_vllm()
    chosen = tuple(dict.fromkeys(layouts)) or tuple(LAYOUTS)
    title = _title(vllm, tokens)
    try:
        found = measure(
            chosen,
            Effort(tokens),
            with_vllm=vllm.version is not None,
            host=host,
            on_layout=_say_nothing if quiet else _say,
        )
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    try:
        _write(found, title, vllm, tokens, json_path, plot_path)
    finally:
        if not quiet:
            print_measurements(found, title)


def _title(vllm: UsableVllm, tokens: int) -> str:
    against = f"vLLM {vllm.version}" if vllm.version else f"vLLM is not measured: {vllm.why_not}"
    return (
        f"kvoxide {__version__}; {against}; prompts of {tokens:,} tokens; CPU time per operation,"
        " fastest round"
    )


def _say(layout: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"measuring {layout}: {LAYOUTS[layout].description}", err=True)


def _say_nothing(layout: str) -> None:
    pass


def _write(
    found: Sequence[Measurement],
    title: str,
    vllm: UsableVllm,
    tokens: int,
    json_path: Path | None,
    plot_path: Path | None,
) -> None:
    if json_path is not None:
        record = {
            "kvoxide": __version__,
            "vllm": vllm.version,
            "why_no_vllm": vllm.why_not,
            "python": platform.python_version(),
            "tokens": tokens,
            "rows": rows_of(found),
        }
        with replacing(json_path) as stream:
            stream.write(json_document(record))
    if plot_path is not None:
        with replacing(plot_path) as stream:
            save(draw_measurements(found, title), stream, plot_path.suffix)
