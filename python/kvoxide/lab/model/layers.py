"""The data that one layer keeps of a request, and the memory of a block of it on one rank."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Final, Literal

Kind = Literal[
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "mamba",
    "mamba_none",
]
_FULL: Final = ("full_attention", "mla_attention")
_STATES: Final = ("mamba", "mamba_none")


@dataclass(frozen=True)
class LayerCache:
    """The cache of a layer. Two layers whose caches are equal can share a block table.

    ``content_bytes`` is the memory of a layer for ``tokens_per_entry`` tokens; for states it is the
    whole state. ``mamba_none`` are states without prefix caching. ``window`` is the sliding window
    or the attention chunk in tokens. ``block_size`` is None until the model's is known, see
    :mod:`kvoxide.lab.model.block_sizes`. ``layout`` distinguishes caches that are stored
    differently at the same size. ``page_multiple`` and ``padded_page`` are bytes.
    """

    kind: Kind
    content_bytes: int
    layout: tuple[int | str, ...] = ()
    window: int | None = None
    tokens_per_entry: int = 1
    block_size: int | None = None
    page_multiple: int = 1
    padded_page: int | None = None
    num_prefill_checkpoint_blocks: int = 0
    prefill_checkpoint_alignment: int | None = None

    @property
    def is_state(self) -> bool:
        """Whether a block holds the state of a whole prefix."""
        return self.kind in _STATES

    @property
    def is_full(self) -> bool:
        """Whether a request keeps all of its tokens."""
        return self.kind in _FULL

    @property
    def tokens(self) -> int:
        """The block size in tokens. It must be known."""
        assert self.block_size is not None, "the block size of the model is not set yet"
        return self.block_size

    @property
    def unpadded_page(self) -> int:
        """The bytes of one block without its padding."""
        if self.is_state:
            return self.content_bytes
        page = self.tokens // self.tokens_per_entry * self.content_bytes
        return ceil(page / self.page_multiple) * self.page_multiple

    @property
    def page(self) -> int:
        """The bytes of one block."""
        return self.padded_page or self.unpadded_page

    def with_block_size(self, tokens: int) -> "LayerCache":
        """Return the same cache in blocks of ``tokens``."""
        return replace(self, block_size=tokens)

    def padded_to(self, page: int) -> "LayerCache":
        """Return the same cache with blocks of ``page`` bytes."""
        return replace(self, padded_page=page)

    def blocks_of_request(self, model_len: int, in_flight: int) -> int:
        """Return the blocks that vLLM reserves for a request of ``model_len`` tokens, with up to
        ``in_flight`` of them being computed."""
        if self.kind == "mamba_none":
            return 1
        if self.is_state:
            return 2 + self.num_prefill_checkpoint_blocks
        if self.is_full:
            return ceil(model_len / self.tokens)
        assert self.window is not None, "a group without a window must be full attention"
        if self.kind == "chunked_local_attention":
            return ceil(min(self.window + in_flight, model_len) / self.tokens)
        # Add one, because a window may begin inside a block.
        return ceil(min(self.window - 1 + in_flight, model_len) / self.tokens) + 1


# The caches of each layer of a model, in their order. A layer may keep nothing.
Layers = list[tuple[LayerCache, ...]]
