"""The suite of the verification that compares block hashers."""

import random
from collections.abc import Callable
from typing import Any, Final

from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils

from kvoxide.lab.verify import installed
from kvoxide.lab.verify.hashers.drawing import ODD, draw_options, draw_token, make_request
from kvoxide.lab.verify.managers.printing import readable
from kvoxide.lab.verify.managers.sides.vllm_config import init_none_hash
from kvoxide.lab.verify.suite import Covered, FirstDifference, require_fit
from kvoxide.vllm.plugin.hashing import ALGORITHMS, native_hasher

REQUESTS_PER_UNIT: Final = 8
LOOKAHEADS: Final = (0, 0, 1, 2, 3)
BLOCK_SIZES: Final = (1, 2, 3, 4, 5, 16, 17, 64, 300)

Hasher = Callable[[Any], list[bytes]]


class Hashers:
    name = "hashers"

    def play(self, seed: int, family: str) -> Covered:
        covered = Covered()
        for index in range(REQUESTS_PER_UNIT):
            try:
                covered.calls += _compare_request(f"{family} {seed} {index}")
            except FirstDifference as found:
                found.document["part"] = self.name
                covered.calls += found.covered.calls
                found.covered = covered
                raise
        return covered

    def shrunk(self, found: FirstDifference) -> FirstDifference:
        return found

    def play_again(self, document: dict[str, Any]) -> FirstDifference | None:
        try:
            _compare_request(str(document["request"]))
        except FirstDifference as found:
            return found
        return None


def _compare_request(name: str) -> int:
    """Hash a request as it grows, with both hashers. Return how often."""
    rng = random.Random(f"hashed request {name}")
    algorithm = rng.choice(ALGORITHMS)
    block_size = rng.choice(BLOCK_SIZES)
    lookahead = installed.without_missing({"num_hash_lookahead_tokens": rng.choice(LOOKAHEADS)})
    ours, stock = _hashers(algorithm, block_size, *filter(None, lookahead.values()))
    if ours is None:
        return 0  # a server hashes with vLLM's hasher too
    tokens = _draw_tokens(rng, rng.choice((1, 7, 60, 300)))
    options = draw_options(rng, len(tokens))
    shown = f"a request of {algorithm}, blocks of {block_size}, {lookahead}, {sorted(options)}"
    sides = [_Grown(hasher, tokens, options) for hasher in (stock, ours)]
    for num_calls in range(rng.randrange(1, 12)):
        reference, other = (side.outcome() for side in sides)
        if reference != other:
            call = f"block hashes of {shown} after {len(tokens)} tokens"
            answers = readable(reference), readable(other)
            document = {"request": name, "call": call, "reference": answers[0], "other": answers[1]}
            raise FirstDifference(call, *answers, document, Covered(num_calls))
        if isinstance(reference, str):
            break
        tokens += (more := _draw_tokens(rng, rng.choice((1, 1, 1, 2, 5, 50))))
        for side in sides:
            side.grow(more)
    return num_calls + 1


def _hashers(algorithm: Any, block_size: int, *lookahead: int) -> tuple[Hasher | None, Hasher]:
    """Return the engine's hasher and vLLM's own. The engine's is None if it leaves this algorithm
    to vLLM."""
    init_none_hash(algorithm)
    function = get_hash_fn_by_name(algorithm)
    stock = kv_cache_utils.get_request_block_hasher(block_size, function, *lookahead)
    ours = native_hasher(kv_cache_utils, stock, block_size, function, *lookahead)
    return ours, stock


def _draw_tokens(rng: random.Random, num_tokens: int) -> list[Any]:
    tokens: list[Any] = [draw_token(rng) for _ in range(num_tokens)]
    if rng.random() < 0.05:
        tokens[rng.randrange(num_tokens)] = rng.choice(ODD)
    return tokens


class _Grown:
    """A request on one side."""

    def __init__(self, hasher: Hasher, tokens: list[Any], options: dict[str, Any]) -> None:
        self._request: Any = None
        self._raised: str | None = None
        self._do(lambda: self._make(tokens, hasher, options))

    def _make(self, tokens: list[Any], hasher: Hasher, options: dict[str, Any]) -> None:
        self._request = make_request(list(tokens), hasher, **options)

    def grow(self, tokens: list[Any]) -> None:
        more = tokens[0] if len(tokens) == 1 else list(tokens)
        self._do(lambda: self._request.append_output_token_ids(more))

    def outcome(self) -> list[bytes] | str:
        """Return the hashes, or the class of the exception."""
        return self._raised or list(self._request.block_hashes)

    def _do(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            require_fit(error)
            self._raised = type(error).__name__
