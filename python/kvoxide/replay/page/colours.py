"""Colours of the plots. A page is drawn in the light ones; in the dark, each is replaced by the one
that takes its place."""

from typing import Final

# Light and dark; each light one once, since it is what the other is found by.
POLICIES: Final = (
    ("#2a78d6", "#4b91e8"),
    ("#e0622b", "#e5743f"),
    ("#12936a", "#2bb287"),
    ("#b8519b", "#cf6db4"),
    ("#c48a00", "#d9a326"),
    ("#5a46b4", "#9689ea"),
    ("#7c5a3a", "#b08a66"),
)
# What policies are compared with.
REFERENCE: Final = ("#39424e", "#d0d7de")
# Of the bars of hits and losses, and of what a pool's blocks are, in the order of their names.
FATES: Final = (
    ("#1f9d76", "#2aa57e"),
    ("#d2502e", "#dc6747"),
    ("#eaa23f", "#d99a3c"),
    ("#8b68c8", "#9d7fd6"),
    ("#d8dce2", "#3a424d"),
)
BLOCKS: Final = (
    ("#8d96a3", "#7d8692"),
    ("#3173d2", "#3f80da"),
    ("#86b8ee", "#8fc0f3"),
    ("#e3c030", "#c9a927"),
    ("#eceff3", "#262d36"),
)
# Evicted blocks: of full attention, and of windows and states.
EVICTIONS: Final = (("#d2502f", "#dc6748"), ("#eaa240", "#d99a3d"))


def dark_colours() -> dict[str, str]:
    """The dark colour of each light one."""
    return dict((*POLICIES, REFERENCE, *FATES, *BLOCKS, *EVICTIONS))
