"""Describe outcomes as tables, plots and JSON values, and write result files.

``tables`` and ``time_tables`` are printed, and are on the page of ``--html`` too. ``figures`` and
``curves`` describe what both that page and ``plots``, for ``--plot``, draw. The modules
``..._records`` compute JSON values. ``output_options`` defines the options that name result files,
and ``output_files`` writes those files.
"""

from kvoxide.replay.results.colours import dark_colours
from kvoxide.replay.results.comparison_results import (
    comparison_hit_shares,
    comparison_record,
    comparison_title,
    hits_text,
    trace_record,
)
from kvoxide.replay.results.curves import HitShares, over_trace
from kvoxide.replay.results.experiment_results import experiment_rows, experiment_shares
from kvoxide.replay.results.figures import (
    PoolCourse,
    fate_bars,
    has_tick_for_each,
    is_logarithmic,
    is_reference,
    line_style,
    pool_course,
)
from kvoxide.replay.results.outcome_records import json_document, request_lines
from kvoxide.replay.results.output_files import check_distinct, replacing
from kvoxide.replay.results.output_options import (
    html_option,
    output_option,
    plot_option,
    quiet_option,
)
from kvoxide.replay.results.plots import COLOURS, draw_hit_shares, draw_trace, new_figure, save
from kvoxide.replay.results.tables import (
    hit_share_table,
    outcome_table,
    print_hit_shares,
    print_outcomes,
)
from kvoxide.replay.results.time_records import serving_settings_record
from kvoxide.replay.results.time_tables import print_serving, serving_tables, timed_outcomes

__all__ = [
    "COLOURS",
    "HitShares",
    "PoolCourse",
    "check_distinct",
    "comparison_hit_shares",
    "comparison_record",
    "comparison_title",
    "dark_colours",
    "draw_hit_shares",
    "draw_trace",
    "experiment_rows",
    "experiment_shares",
    "fate_bars",
    "has_tick_for_each",
    "hit_share_table",
    "hits_text",
    "html_option",
    "is_logarithmic",
    "is_reference",
    "json_document",
    "line_style",
    "new_figure",
    "outcome_table",
    "output_option",
    "over_trace",
    "plot_option",
    "pool_course",
    "print_hit_shares",
    "print_outcomes",
    "print_serving",
    "quiet_option",
    "replacing",
    "request_lines",
    "save",
    "serving_settings_record",
    "serving_tables",
    "timed_outcomes",
    "trace_record",
]
