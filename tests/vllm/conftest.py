"""Fixtures: a vLLM whose sources equal no known release, and the messages that kvoxide logs in
it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kvoxide.vllm.environment import recognition, sources

from tests.testing.logs import logged


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Collect the messages that kvoxide logs."""
    with logged(logging.INFO) as seen:
        yield seen


@pytest.fixture
def changed_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let vLLM's sources seem to have another ``BlockPool.touch``. Its code is unchanged."""
    read = sources.read_source

    def read_source(origin: str) -> bytes | None:
        source = read(origin)
        if source is None or not origin.endswith("block_pool.py"):
            return source
        return source.replace(b"block.ref_cnt += 1", b"block.ref_cnt += 2")

    recognition._code_at.cache_clear()
    monkeypatch.setattr(recognition, "read_source", read_source)
    yield
    recognition._code_at.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that schedulers are recorded to, without much delay."""
    from kvoxide.vllm.recording import recorder

    folder = tmp_path / "recorded" / "here"
    monkeypatch.setenv("KVOXIDE_RECORD", str(folder))
    monkeypatch.setenv("KVOXIDE_SHADOW_DIR", str(tmp_path))
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 0.01)
    return folder


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Collect the warnings of kvoxide."""
    with logged(logging.WARNING) as seen:
        yield seen
