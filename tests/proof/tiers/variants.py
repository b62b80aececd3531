"""The variants of each cell: policies of both tiers, and vLLM's options."""

from dataclasses import dataclass
from typing import Final

from kvoxide._core import HostMemory

from tests.proof.retention.playing import ADAPTIVE

VLLM: Final = "vllm"
TOKEN_BYTES: Final = 128 * 1024  # as in kvoxide replay without a model


@dataclass(frozen=True)
class Variant:
    """A policy of the GPU pool, and of CPU memory if there is any. In a variant that is ``joined``,
    the GPU pool has the blocks of both, and there is no CPU memory."""

    gpu: str
    host: str | None = None
    store_threshold: int = 0
    prompt_only: bool = True
    joined: bool = False

    @property
    def name(self) -> str:
        if self.joined:
            return f"{self.gpu} one pool"
        if self.host is None:
            return f"{self.gpu} alone"
        threshold = f" threshold {self.store_threshold}" if self.store_threshold else ""
        answers = "" if self.prompt_only else " answers"
        return f"{self.gpu}/{self.host}{threshold}{answers}"

    @property
    def is_rival(self) -> bool:
        """Whether it has two tiers, so that others in the same memory are compared with it."""
        return self.host is not None

    def memory(self, chunks: int, block_size: int) -> HostMemory | None:
        """Return the CPU memory, with chunks for blocks of ``block_size`` tokens."""
        if self.host is None:
            return None
        return HostMemory(
            chunks,
            block_size * TOKEN_BYTES,
            eviction_policy=self.host,  # type: ignore[arg-type]
            store_threshold=self.store_threshold,
            offload_prompt_only=self.prompt_only,
        )

    def missing(self) -> str | None:
        """Return why the installed kvoxide cannot play it, or None if it can."""
        try:
            self.memory(1, 16)
        except ValueError as error:
            return f"{self.name} is skipped: the installed kvoxide does not know it ({error})"
        return None


WRITE_THROUGH: Final = Variant(VLLM, "lru")
ADAPTIVE_LRU: Final = Variant(ADAPTIVE, "lru")
ADAPTIVE_ARC: Final = Variant(ADAPTIVE, "arc")
BOTH_ADAPTIVE: Final = Variant(ADAPTIVE, ADAPTIVE)
VARIANTS: Final = (
    Variant(VLLM),
    WRITE_THROUGH,
    Variant(VLLM, "arc"),
    Variant(VLLM, "lru", store_threshold=2),
    Variant(VLLM, "lru", prompt_only=False),
    Variant(ADAPTIVE),
    ADAPTIVE_LRU,
    ADAPTIVE_ARC,
    Variant(ADAPTIVE, "lru", store_threshold=2),
    Variant(ADAPTIVE, "lru", prompt_only=False),
    BOTH_ADAPTIVE,
    Variant(ADAPTIVE, joined=True),
)
