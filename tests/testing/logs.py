"""Collects the messages that kvoxide logs in a vLLM process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logged(level: int) -> Iterator[list[str]]:
    """Collect the messages of kvoxide's logger from a ``level`` on.

    The logger itself gets that level meanwhile, unless its own level is lower.
    """
    seen: list[str] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.kvoxide")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level, logger.getEffectiveLevel()))
    yield seen
    logger.removeHandler(handler)
    logger.setLevel(before)


def about(lines: list[str], word: str) -> list[str]:
    """Return the messages that contain a word."""
    return [line for line in lines if word in line]
