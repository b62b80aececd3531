"""The plots of a page."""

from kvoxide.lab.replay.page.figures.hits import fates, hit_course, hit_shares
from kvoxide.lab.replay.page.figures.pool import blocks, evictions
from kvoxide.lab.replay.page.figures.styles import Styles
from kvoxide.lab.replay.page.figures.times import (
    TIMES,
    by_instance,
    over_arrivals,
    over_pools,
    quantiles,
)

__all__ = [
    "TIMES",
    "Styles",
    "blocks",
    "by_instance",
    "evictions",
    "fates",
    "hit_course",
    "hit_shares",
    "over_arrivals",
    "over_pools",
    "quantiles",
]
