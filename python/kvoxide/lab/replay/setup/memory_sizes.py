"""Parses sizes of memory, in bytes and in blocks, and bandwidths."""

import re
from typing import Final

from kvoxide._core import ConfigError

_UNITS: Final = {
    "": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
_MEMORY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")


def parse_memories(text: str) -> tuple[int, ...]:
    """Return sizes in bytes, smallest first, from sizes such as ``60GiB`` with commas."""
    return tuple(sorted({parse_memory(item.strip()) for item in text.split(",")}))


def parse_memory(text: str) -> int:
    """Return a size such as ``60GiB`` in bytes. Raises :class:`~kvoxide.ConfigError`."""
    if (size := _bytes(text)) is None:
        raise ConfigError(
            f"{text!r} is not a size of memory; write 60GiB, 64GB or a number of bytes"
        )
    return size


def parse_numbers_of_blocks(text: str) -> set[int]:
    """Return numbers of blocks from a text with commas. Raises
    :class:`~kvoxide.ConfigError`."""
    try:
        return {int(size) for size in text.split(",")}
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a number of blocks; write one, or several with commas"
        ) from None


def parse_bandwidth(text: str) -> float:
    """Return a bandwidth such as ``25GB/s`` in bytes per second. Raises
    :class:`~kvoxide.ConfigError`."""
    size = _bytes(text.removesuffix("/s")) if text.endswith("/s") else None
    if size is None:
        raise ConfigError(f"{text!r} is not a bandwidth; write it as 25GB/s")
    return float(size)


def _bytes(text: str) -> int | None:
    match = _MEMORY.fullmatch(text)
    unit = _UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        return None
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
