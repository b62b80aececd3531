"""Computes block hashes of vLLM's requests with the engine, byte for byte equal to vLLM's hasher.

vLLM creates one hasher per engine, with ``get_request_block_hasher``. After each change of a
request, it calls the hasher for the hashes of the request's new full blocks. :func:`take_over`
replaces that function. :func:`take_over_engine` replaces it in a module that imported it by name
before.

A hash can cover any Python object. The engine encodes plain ones. If a block has anything else,
such as a token that is not a plain int of 64 bits, vLLM's function hashes the block. The engine
continues after it.
"""

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kvoxide.vllm.environment import (
    count_fallback,
    counters,
    logger,
    settings,
    takeover_reasons,
)

if TYPE_CHECKING:
    from kvoxide._core import HashAlgorithm

UTILS_MODULE: Final = "vllm.v1.core.kv_cache_utils"
ENGINE_MODULE: Final = "vllm.v1.engine.core"
FUNCTION: Final = "get_request_block_hasher"
ALGORITHMS: Final[tuple["HashAlgorithm", ...]] = (
    "sha256",
    "sha256_cbor",
    "xxhash",
    "xxhash_cbor",
)

# The compiled module reads this attribute of a request.
CHAIN_END: Final = "_kvoxide_chain_end"

# If a request has more blocks that the engine cannot encode, vLLM hashes the rest of it. Each such
# block makes the engine read the rest of the request again.
MAX_LEFT_BLOCKS: Final = 16

HashFunction: TypeAlias = Callable[[Any], bytes]
RequestHasher: TypeAlias = Callable[[Any], list[bytes]]


def take_over(utils: ModuleType) -> None:
    """Replace the function that makes request hashers in vLLM's module."""
    stock = getattr(utils, FUNCTION, None)
    if isinstance(stock, FunctionType) and stock.__globals__ is vars(utils):
        setattr(utils, FUNCTION, _replacement(stock, utils))


def take_over_engine(engine: ModuleType) -> None:
    """Replace the function that the engine's module imported before :func:`take_over`."""
    from vllm.v1.core import kv_cache_utils as utils

    ours = getattr(utils, FUNCTION, None)
    if vars(engine).get(FUNCTION) is getattr(ours, "__wrapped__", engine):
        setattr(engine, FUNCTION, ours)


def _replacement(
    stock: Callable[..., RequestHasher], utils: ModuleType
) -> Callable[..., RequestHasher]:
    @functools.wraps(stock)
    def get_request_block_hasher(*args: Any, **kwargs: Any) -> RequestHasher:
        made = stock(*args, **kwargs)
        if settings.current_mode() not in ("auto", "require") or takeover_reasons():
            return made  # the line about the manager says why
        bound = inspect.signature(stock).bind(*args, **kwargs).arguments
        native = native_hasher(utils, made, **bound)
        counters.set_gauge("kvoxide_active", int(native is not None), part="hasher")
        return native or made

    return get_request_block_hasher


def native_hasher(
    utils: ModuleType,
    stock: RequestHasher,
    hash_block_size: Any,
    caching_hash_fn: Any,
    num_hash_lookahead_tokens: Any = 0,
) -> RequestHasher | None:
    """Return the engine's hasher, or None if vLLM's is used."""
    algorithm = _algorithm_of(caching_hash_fn)
    sizes = hash_block_size, num_hash_lookahead_tokens
    if algorithm is None or not all(type(size) is int and 0 <= size < 2**31 for size in sizes):
        return None
    if hash_block_size == 0:
        return None
    if not _hash_alike(algorithm, caching_hash_fn):
        count_fallback("hash_difference")
        logger.warning(
            "kvoxide: using vLLM's %s block hashing; kvoxide's hasher returns different hashes in "
            "this environment. Hits are the same; hashing is slower. Another "
            "--prefix-caching-hash-algo may be faster.",
            algorithm,
        )
        return None
    return _RequestHasher(utils, algorithm, caching_hash_fn, *sizes).function(stock)


def _algorithm_of(hash_function: Any) -> "HashAlgorithm | None":
    """Return which of vLLM's four functions this is, or None if it is another."""
    from vllm.utils import hashing

    if getattr(hash_function, "__globals__", None) is not vars(hashing):
        return None
    return next((name for name in ALGORITHMS if name == hash_function.__code__.co_name), None)


def _hash_alike(algorithm: "HashAlgorithm", hash_function: HashFunction) -> bool:
    """Return whether both functions hash a few values alike. The values cover everything that the
    engine encodes. They may differ because another Python may write other pickles, or because
    xxhash is not installed."""
    from kvoxide._core_vllm import VllmBlockHasher

    parent, text = b"parent", "text"
    tokens = [0, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**63 - 1, -1, -(2**31) - 1]
    key = (("mm", text, -1), (text, b"bytes", text), ("x" * 300, ()))
    try:
        for block, extra in ((tokens, key), (tokens[:1], None), (tokens * 1_500, key)):
            ours = VllmBlockHasher(len(block), algorithm).hash_blocks(parent, block, 0, 1, [extra])
            if ours != [hash_function((parent, tuple(block), extra))]:
                return False
    except Exception:
        return False
    return True


def _key_function(utils: Any, num_lookahead_tokens: int) -> Callable[..., tuple[Any, int]]:
    """Return vLLM's function from (request, start, end, multimodal index) to the keys of a
    block."""
    if not num_lookahead_tokens:
        plain: Callable[..., tuple[Any, int]] = utils.generate_block_hash_extra_keys
        return plain
    generate = utils.generate_lookahead_block_hash_extra_keys

    def keys_of_block(request: Any, start: int, end: int, mm_index: int) -> tuple[Any, int]:
        covered = end + num_lookahead_tokens
        made: tuple[Any, int] = generate(request, start, end, covered, mm_index)
        return made

    return keys_of_block


def _note_chain_end(request: Any, known: list[bytes], new: list[bytes], head: Any) -> None:
    """Store in a request how many hashes it has, the last of them, and the first ones in Rust, if
    all were computed here. The last hash covers all before it, so the engine need not read them.
    ``head`` are the first of ``new`` if none was ``known``."""
    attributes = getattr(request, "__dict__", None)
    if attributes is None:
        return
    num_known = len(known)
    if num_known:
        end = attributes.get(CHAIN_END)
        if end is None or end[0] != num_known or end[1] is not known[-1]:
            return
        head = end[2]
    attributes[CHAIN_END] = num_known + len(new), new[-1], head


class _RequestHasher:
    """Hashes the new blocks of requests."""

    def __init__(
        self,
        utils: ModuleType,
        algorithm: "HashAlgorithm",
        hash_function: HashFunction,
        block_size: int,
        num_lookahead_tokens: int,
    ) -> None:
        from kvoxide._core_vllm import VllmBlockHasher

        self._utils = utils
        self._hash_function = hash_function
        self._features_in_window = utils.get_mm_features_in_window
        self._keys_of_block = _key_function(utils, num_lookahead_tokens)
        self._block_size = block_size
        self._num_lookahead_tokens = num_lookahead_tokens
        self._hasher = VllmBlockHasher(block_size, algorithm, num_lookahead_tokens)

    def function(self, stock: RequestHasher) -> RequestHasher:
        """Return the function that vLLM calls. Most calls find no new block; for them it is as
        short as ``stock``."""
        block_size, num_lookahead_tokens = self._block_size, self._num_lookahead_tokens
        hash_new_blocks = self._new_blocks_function(stock)

        def request_block_hasher(request: Any) -> list[bytes]:
            start = len(request.block_hashes) * block_size
            num_tokens = request.num_tokens - num_lookahead_tokens
            if start + block_size > num_tokens:
                return []
            return hash_new_blocks(request, start, (num_tokens - start) // block_size)

        return request_block_hasher

    def _new_blocks_function(self, stock: RequestHasher) -> Callable[[Any, int, int], list[bytes]]:
        from vllm.v1.utils import ConstantList

        hasher, utils = self._hasher, vars(self._utils)

        def hash_new_blocks(request: Any, start: int, num_blocks: int) -> list[bytes]:
            tokens = request.all_token_ids
            if type(tokens) is not ConstantList:
                return stock(request)
            keys = None
            if (
                request.mm_features
                or request.lora_request
                or request.prompt_embeds is not None
                or (request.cache_salt and not start)
            ):
                keys = self._extra_keys(request, start, num_blocks)
            known = request.block_hashes
            parent = (known[-1] if known else None) or utils.get("NONE_HASH")
            head = None
            if start:
                hashes = hasher.hash_blocks(parent, tokens._x, start, num_blocks, keys)
            else:
                hashes, head = hasher.hash_prompt(parent, tokens._x, num_blocks, keys)
            if len(hashes) < num_blocks:
                self._hash_rest(request, hashes, num_blocks, keys or [None])
            _note_chain_end(request, known, hashes, head)
            return hashes

        return hash_new_blocks

    def _extra_keys(self, request: Any, start: int, num_blocks: int) -> list[Any]:
        """Return the keys of each block, as vLLM computes them. The last entry also holds for all
        blocks after it."""
        block_size, keys_of_block = self._block_size, self._keys_of_block
        mm_features, mm_end, mm_index = request.mm_features, 0, 0
        if mm_features:
            last = mm_features[-1].mm_position
            mm_end = last.offset + last.length
            if 0 < start < mm_end:
                mm_index, _ = self._features_in_window(mm_features, start, start + block_size)
        keys, mm_index = keys_of_block(request, start, start + block_size, mm_index)
        all_keys = [keys]
        if num_blocks == 1:
            return all_keys
        stop = start + (num_blocks - 1) * block_size
        if request.prompt_embeds is None:
            # The salt and the multimodal inputs come before; after them only the adapter remains.
            stop = min(stop, max(mm_end, 1))
        while start < stop:
            start += block_size
            keys, mm_index = keys_of_block(request, start, start + block_size, mm_index)
            all_keys.append(keys)
        return all_keys

    def _hash_rest(
        self, request: Any, hashes: list[bytes], num_blocks: int, keys: list[Any]
    ) -> None:
        """Add the hashes of blocks that the engine could not encode. vLLM's function hashes the
        first of them. Then the engine hashes the blocks after it, unless it has left too many
        already."""
        known, tokens = request.block_hashes, request.all_token_ids
        num_left = 0
        while (done := len(hashes)) < num_blocks:
            start = (len(known) + done) * self._block_size
            parent = hashes[-1] if hashes else known[-1] if known else None
            keys_of_block = keys[min(done, len(keys) - 1)]
            hashes.append(self._hash_one_block(parent, tokens, start, keys_of_block))
            num_left += 1
            if num_left <= MAX_LEFT_BLOCKS:
                hashes += self._hasher.hash_blocks(
                    hashes[-1],
                    tokens._x,
                    start + self._block_size,
                    num_blocks - done - 1,
                    keys[min(done + 1, len(keys) - 1) :],
                )

    def _hash_one_block(self, parent: Any, tokens: Any, start: int, keys: Any) -> bytes:
        end = start + self._block_size
        if self._num_lookahead_tokens:
            keys = (keys, *tokens[end : end + self._num_lookahead_tokens])
        made: bytes = self._utils.hash_block_tokens(
            self._hash_function, parent, tokens[start:end], keys
        )
        return made
