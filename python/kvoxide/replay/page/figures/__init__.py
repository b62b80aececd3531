"""The plots of a page."""

from kvoxide.replay.page.figures.hits import fates, hit_course, hit_shares
from kvoxide.replay.page.figures.pool import blocks, evictions
from kvoxide.replay.page.figures.styles import Styles
from kvoxide.replay.page.figures.times import (
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
