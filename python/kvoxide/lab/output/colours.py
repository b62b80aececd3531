"""Define the colours of figures. Plots and light pages have the first of each pair, dark pages the
second."""

from typing import Final

# Each light colour is there once, because a page finds its dark colour by it.
POLICIES: Final = (
    ("#2a78d6", "#4b91e8"),
    ("#e0622b", "#e5743f"),
    ("#12936a", "#2bb287"),
    ("#b8519b", "#cf6db4"),
    ("#c48a00", "#d9a326"),
    ("#5a46b4", "#9689ea"),
    ("#7c5a3a", "#b08a66"),
)
# Lines with which policies are compared.
REFERENCE: Final = ("#39424e", "#d0d7de")
# Shares of prompt tokens: hits (on the GPU, if there is CPU memory), then the reasons why tokens
# were not hit.
FATES: Final = {
    "hit": ("#1f9d76", "#2aa57e"),
    "hit on CPU": ("#7cc7ad", "#6fbfa4"),
    "full evicted": ("#d2502e", "#dc6747"),
    "tail evicted": ("#eaa23f", "#d99a3c"),
    "never cached": ("#8b68c8", "#9d7fd6"),
    "first time": ("#d8dce2", "#3a424d"),
}
# States of a pool's blocks, in the order of the columns of a result's ``retention_timeline``.
BLOCKS: Final = {
    "in use": ("#8d96a3", "#7d8692"),
    "full waiting": ("#3173d2", "#3f80da"),
    "tail waiting": ("#86b8ee", "#8fc0f3"),
    "held, pinned": ("#e3c030", "#c9a927"),
    "empty": ("#eceff3", "#262d36"),
}
# Evicted blocks: of full attention, and of windows and states.
EVICTIONS: Final = {
    "evicted full": ("#d2502f", "#dc6748"),
    "evicted tail": ("#eaa240", "#d99a3d"),
}


def dark_colours() -> dict[str, str]:
    """Return the dark colour of each light one."""
    named = (*FATES.values(), *BLOCKS.values(), *EVICTIONS.values())
    return dict((*POLICIES, REFERENCE, *named))
