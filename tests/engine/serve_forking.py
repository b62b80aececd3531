"""Runs ``vllm serve`` with engines and API servers that are forks of it, because a new Python would
import vLLM again."""

import multiprocessing
import os
import runpy

from prometheus_client import values


def share_counters() -> None:
    """Let metrics of a fork be files for all processes, as in a new Python with this variable."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        values.ValueClass = values.get_value_class()


if __name__ == "__main__":
    forking = multiprocessing.get_context("fork")
    # The platform of CPUs would start new ones.
    multiprocessing.get_context = lambda method=None: forking  # type: ignore[assignment]
    os.register_at_fork(after_in_child=share_counters)
    runpy.run_module("vllm.entrypoints.cli.main", run_name="__main__")
