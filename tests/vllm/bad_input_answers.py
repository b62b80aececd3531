"""Prints the answers to the rows for vLLM as JSON. The process needs vLLM and the plugin."""

import json
import os
import sys
from dataclasses import asdict

from tests.testing.bad_input import IN_VLLM, Answer, Row, rows, run_python, setup


def main() -> None:
    """Run every row, each in the environment in which the process started."""
    answers = [asdict(_answer(row)) for row in rows() if row.how == IN_VLLM]
    json.dump(answers, sys.stdout)


def _answer(row: Row) -> Answer:
    environment = dict(os.environ)
    try:
        return run_python(setup(IN_VLLM), row)
    finally:
        os.environ.clear()
        os.environ.update(environment)


if __name__ == "__main__":
    main()
