"""Sizes of both tiers."""

import argparse
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Size:
    """The GPU pool in % of the working set, and CPU memory as a multiple of the pool.

    The working set is the number of blocks that vLLM's default has cached at the end in a pool
    without evictions.
    """

    percent: float
    times: float

    def __str__(self) -> str:
        return f"{self.percent:g} % / {self.times:g}x"

    def blocks(self, working_set: int) -> int:
        """Return the blocks of the GPU pool."""
        return round(self.percent / 100 * working_set)

    def chunks(self, working_set: int) -> int:
        """Return the blocks of CPU memory."""
        return round(self.times * self.blocks(working_set))


SIZES: Final = (Size(3, 4), Size(10, 1))


def sizes(text: str) -> list[Size]:
    """Parse ``PERCENT:TIMES``, with commas between sizes."""
    return [_size(each) for each in text.split(",")]


def _size(text: str) -> Size:
    percent, _, times = text.partition(":")
    try:
        size = Size(float(percent), float(times))
    except ValueError:
        size = Size(0, 0)
    if not (0 < size.percent <= 100 and 0 < size.times <= 1000):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size; write the pool in % of the working set and CPU memory as a"
            " multiple of the pool, such as 3:4,10:1"
        )
    return size
