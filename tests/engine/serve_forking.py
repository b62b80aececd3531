"""Runs ``vllm serve`` with engines that are forks of it, because a new Python would import vLLM
again."""

import multiprocessing
import runpy
from importlib import import_module
from typing import Any

if __name__ == "__main__":
    # The platform of CPUs would start new ones.
    for user in ("coordinator", "utils"):
        module: Any = import_module(f"vllm.v1.engine.{user}")
        module.get_mp_context = lambda: multiprocessing.get_context("fork")
    runpy.run_module("vllm.entrypoints.cli.main", run_name="__main__")
