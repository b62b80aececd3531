"""The files that a replay writes."""

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvoxide.replay.comparison import Comparison
from kvoxide.replay.outputs import check_distinct, replacing
from kvoxide.replay.page import replay_page
from kvoxide.replay.plots import draw_hit_shares, draw_trace, save
from kvoxide.replay.records import json_document, request_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ResultFiles:
    """Where a replay writes what; nothing where there is None."""

    json_path: Path | None
    per_request_path: Path | None
    plot_path: Path | None
    html_path: Path | None

    def check(self, trace: str) -> None:
        """Raise :class:`~kvoxide.replay.outputs.OutputError` if two of them, or one and the trace,
        are the same file."""
        check_distinct(trace, astuple(self))

    def write(self, comparison: Comparison) -> None:
        """Write all of them. Raises :class:`~kvoxide.replay.outputs.OutputError`."""
        if self.json_path is not None:
            with replacing(self.json_path) as stream:
                stream.write(json_document(comparison.record()))
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
    if len(comparison.settings.pool_sizes) > 1:
        return draw_hit_shares(comparison.hit_shares, comparison.title)
    return draw_trace(comparison.outcomes, comparison.title)
