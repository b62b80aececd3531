"""Set-up for the tests of measurements."""

import gc

import pytest


@pytest.fixture(autouse=True)
def unfreezing_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the test modules import from the collector, which each measurement runs. It has a
    million objects if vLLM is imported."""
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
