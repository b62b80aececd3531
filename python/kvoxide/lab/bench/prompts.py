"""Prompts with block hashes that are computed beforehand, because hashing is not the manager's
work."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_HASH_BYTES: Final = 32


@dataclass(frozen=True)
class Prompt:
    """A prompt of ``num_tokens``. ``hashes`` are the hashes of the prompt and of the output after
    it, concatenated."""

    num_tokens: int
    hash_block_size: int
    hashes: bytes

    def hashes_between(self, start: int, stop: int) -> list[bytes]:
        """Return the hashes ``start`` to ``stop`` (exclusive), as new objects."""
        size = _HASH_BYTES
        return [self.hashes[i * size : (i + 1) * size] for i in range(start, stop)]

    def num_hashes(self, num_tokens: int) -> int:
        """Return how many hash blocks ``num_tokens`` fill."""
        return num_tokens // self.hash_block_size

    def hasher(self) -> Callable[[Any], list[bytes]]:
        """Return the function that vLLM's request calls for the hashes that it lacks."""
        return lambda request: self.hashes_between(
            len(request.block_hashes), self.num_hashes(request.num_tokens)
        )


def make_prompt(
    name: str, num_tokens: int, hash_block_size: int, num_output_tokens: int = 0
) -> Prompt:
    """Return the prompt with this name. Another name has other hashes from its first block on."""
    count = (num_tokens + num_output_tokens) // hash_block_size
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return Prompt(
        num_tokens, hash_block_size, np.random.default_rng(seed).bytes(count * _HASH_BYTES)
    )
