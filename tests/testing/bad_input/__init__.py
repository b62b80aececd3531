"""The rows of tests/bad_input.md: :mod:`.table` reads them, :mod:`.running` runs them."""

from .running import (
    Answer,
    require_answer,
    run_command,
    run_environment,
    run_in,
    run_line,
    run_python,
)
from .table import IN_HINTS, IN_VLLM, Row, rows, setup

__all__ = [
    "IN_HINTS",
    "IN_VLLM",
    "Answer",
    "Row",
    "require_answer",
    "rows",
    "run_command",
    "run_environment",
    "run_in",
    "run_line",
    "run_python",
    "setup",
]
