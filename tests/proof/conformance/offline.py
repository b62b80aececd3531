"""A pytest plugin that lets vLLM's tests run without an accelerator."""

import pytest
import torch

MARKERS = ("cpu_test", "skip_global_cleanup", "slow_test", "optional")


def pytest_configure(config: pytest.Config) -> None:
    """Switch off the call that empties an accelerator's cache, and register vLLM's markers."""
    torch.accelerator.empty_cache = lambda: None
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
