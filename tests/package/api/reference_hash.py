"""vLLM's chained block hashes, in plain Python: sha256 over canonical CBOR.

The hash of a block is the hash of the array (parent hash, token ids, extra keys or null). The
parent of the first block is the hash of a seed.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

Cbor: TypeAlias = "int | bytes | str | Sequence[Cbor] | None"


def encode(value: Cbor) -> bytes:
    match value:
        case None:
            return b"\xf6"
        case int():
            return _head(0, value) if value >= 0 else _head(1, -1 - value)
        case bytes():
            return _head(2, len(value)) + value
        case str():
            text = value.encode()
            return _head(3, len(text)) + text
        case _:
            return _head(4, len(value)) + b"".join(map(encode, value))


def block_hashes(
    tokens: Sequence[int],
    block_size: int,
    *,
    seed: str = "vllm-none-hash",
    first_keys: Sequence[Cbor] = (),
    every_keys: Sequence[Cbor] = (),
) -> list[bytes]:
    """Return the hashes of the full blocks. In the first block, ``first_keys`` follow
    ``every_keys``."""
    parent = _sha256(seed)
    hashes = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        keys = [*every_keys, *(first_keys if start == 0 else ())]
        parent = _sha256([parent, tokens[start : start + block_size], keys or None])
        hashes.append(parent)
    return hashes


def _sha256(value: Cbor) -> bytes:
    return hashlib.sha256(encode(value)).digest()


def _head(major_type: int, number: int) -> bytes:
    """Return a major type with its number in the fewest bytes."""
    if number < 24:
        return bytes([major_type << 5 | number])
    for additional, size in [(24, 1), (25, 2), (26, 4), (27, 8)]:
        if number < 1 << 8 * size:
            return bytes([major_type << 5 | additional]) + number.to_bytes(size, "big")
    raise ValueError(f"{number} does not fit CBOR's 8 bytes")
