"""The files that a replay writes."""

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvoxide.lab.output.figures import save
from kvoxide.lab.output.files import check_distinct, json_document, replacing
from kvoxide.lab.replay.page import replay_page
from kvoxide.lab.replay.results import (
    comparison_hit_shares,
    comparison_record,
    comparison_title,
    draw_hit_shares,
    draw_trace,
    request_lines,
)
from kvoxide.lab.replay.run import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ResultFiles:
    """The result files of a replay. A path of None writes no file."""

    json_path: Path | None
    per_request_path: Path | None
    plot_path: Path | None
    html_path: Path | None

    def check(self, trace: str) -> None:
        """Raise :class:`~kvoxide.lab.output.files.OutputError` if two files, or a
        file and the trace, are the same."""
        check_distinct(trace, astuple(self))

    def write(self, comparison: Comparison) -> None:
        """Write all files. Raises :class:`~kvoxide.lab.output.files.OutputError`."""
        if self.json_path is not None:
            with replacing(self.json_path) as stream:
                stream.write(json_document(comparison_record(comparison)))
        if self.per_request_path is not None:
            with replacing(self.per_request_path) as stream:
                stream.writelines(request_lines(comparison.outcomes))
        if self.plot_path is not None:
            with replacing(self.plot_path) as stream:
                save(_draw(comparison), stream, self.plot_path.suffix)
        if self.html_path is not None:
            with replacing(self.html_path) as stream:
                stream.write(replay_page(comparison))


def _draw(comparison: Comparison) -> "Figure":
    title = comparison_title(comparison)
    if len(comparison.settings.pool_sizes) > 1:
        return draw_hit_shares(comparison_hit_shares(comparison), title)
    return draw_trace(comparison.outcomes, title)
