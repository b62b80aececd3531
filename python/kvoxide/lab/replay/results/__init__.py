"""Describe outcomes as tables, plots and JSON values.

``tables``, ``time_tables`` and ``host_results`` are printed, and are on the page of ``--html`` too.
``figures`` and ``curves`` describe what both that page and ``plots``, for ``--plot``, draw. The
modules ``..._records`` compute JSON values. :mod:`kvoxide.lab.output` writes them to files.
"""

from kvoxide.lab.replay.results.comparison_results import (
    comparison_hit_shares,
    comparison_record,
    comparison_title,
    hits_text,
    trace_record,
)
from kvoxide.lab.replay.results.curves import HitShares, over_trace
from kvoxide.lab.replay.results.experiment_results import experiment_rows, experiment_shares
from kvoxide.lab.replay.results.figures import (
    PoolCourse,
    fate_bars,
    has_tick_for_each,
    is_logarithmic,
    is_reference,
    line_style,
    pool_course,
)
from kvoxide.lab.replay.results.host_results import (
    host_notes,
    host_settings_record,
    host_tables,
    print_host_memory,
    size_note,
)
from kvoxide.lab.replay.results.outcome_records import request_lines
from kvoxide.lab.replay.results.plots import draw_hit_shares, draw_trace
from kvoxide.lab.replay.results.tables import (
    hit_share_table,
    outcome_table,
    print_hit_shares,
    print_outcomes,
)
from kvoxide.lab.replay.results.time_records import serving_settings_record
from kvoxide.lab.replay.results.time_tables import print_serving, serving_tables, timed_outcomes

__all__ = [
    "HitShares",
    "PoolCourse",
    "comparison_hit_shares",
    "comparison_record",
    "comparison_title",
    "draw_hit_shares",
    "draw_trace",
    "experiment_rows",
    "experiment_shares",
    "fate_bars",
    "has_tick_for_each",
    "hit_share_table",
    "hits_text",
    "host_notes",
    "host_settings_record",
    "host_tables",
    "is_logarithmic",
    "is_reference",
    "line_style",
    "outcome_table",
    "over_trace",
    "pool_course",
    "print_hit_shares",
    "print_host_memory",
    "print_outcomes",
    "print_serving",
    "request_lines",
    "serving_settings_record",
    "serving_tables",
    "size_note",
    "timed_outcomes",
    "trace_record",
]
