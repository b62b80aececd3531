"""Names the measurements, and how many times faster than vLLM's manager each is meant to be."""

from dataclasses import dataclass, field
from typing import Final

SHORT_SIZES: Final = (16, 32, 64, 128, 256, 512)
"""Prompt lengths in tokens of the short requests."""


@dataclass(frozen=True)
class Row:
    """One measured operation. ``goals`` has the ratio of vLLM's time to kvoxide's that we aim at,
    by layout."""

    key: str
    text: str
    goals: dict[str, float] = field(hash=False)


def _goals(full: float, gemma: float, dsv4: float, later_ones: float = 8) -> dict[str, float]:
    later = dict.fromkeys(("qwen3-next", "deepseek-v4.1", "dcp"), later_ones)
    return {"full": full, "gemma": gemma, "dsv4": dsv4, **later}


def _short(tokens: int) -> Row:
    goals = _goals(8, 12, 12) if tokens == 256 else _goals(3, 3, 3)
    return Row(f"short-{tokens}", f"short request, {tokens} tokens: look up, admit, free", goals)


def _by_key(*rows: Row) -> dict[str, Row]:
    return {row.key: row for row in rows}


ROWS: Final = _by_key(
    Row("chunk-cold", "prefill chunk, cold pool", _goals(25, 100, 100)),
    Row("chunk-evicting", "prefill chunk, evicting", _goals(25, 100, 100)),
    Row("look-up", "look up a whole hit, first time", _goals(40, 40, 20)),
    Row("look-up-again", "look it up again, unchanged", _goals(1000, 1000, 500)),
    Row("admit", "admit the hit", _goals(60, 60, 60)),
    Row("block-ids", "block ids of the request as lists", _goals(3, 3, 3, 3)),
    Row("free", "free the request", _goals(35, 35, 35)),
    Row("decode", "decode, per request and step", _goals(5, 12, 12)),
    *map(_short, SHORT_SIZES),
)

HOST_ROWS: Final = _by_key(
    Row("host-look-up", "look up a prompt's chunks", _goals(20, 20, 20, 20)),
    Row("host-load", "load them", _goals(20, 20, 20, 20)),
    Row("host-load-ends", "the load ends", _goals(50, 50, 50, 50)),
    Row("host-end", "the request ends", _goals(50, 50, 50, 50)),
    Row("host-store", "store a step of a prompt, evicting", _goals(15, 15, 15, 15)),
)
