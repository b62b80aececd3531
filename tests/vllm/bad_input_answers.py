"""Prints the answers to the rows for vLLM as JSON; the process needs vLLM and the plugin."""

import json
import os
import sys
from dataclasses import asdict

from .running import Answer, run_python
from .table import Row, rows, setup

HOW = "vLLM"


def main() -> None:
    """Run every row, each in the environment that the process started with."""
    answers = [asdict(_answer(row)) for row in rows() if row.how == HOW]
    json.dump(answers, sys.stdout)


def _answer(row: Row) -> Answer:
    environment = dict(os.environ)
    try:
        return run_python(setup(HOW), row)
    finally:
        os.environ.clear()
        os.environ.update(environment)


if __name__ == "__main__":
    main()
