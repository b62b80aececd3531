"""Served traffic as the lines of a trace: texts of named tokens, requests, and draws from a
seed."""

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
from kvoxide._core import Trace

TOKENS_PER_ID: Final = 16

T = TypeVar("T")


class Piece(NamedTuple):
    """Tokens ``start`` to ``end`` of run ``run``; no two runs have a token in common."""

    run: int
    start: int
    end: int

    def first(self, tokens: int) -> "Piece":
        """Return the first tokens of the piece, or all of them if it has no more."""
        return Piece(self.run, self.start, min(self.end, self.start + tokens))


@dataclass(frozen=True)
class Text:
    """Tokens of a prompt: the ids of its full blocks, and the pieces of the block after them."""

    ids: tuple[int, ...] = ()
    open_block: tuple[Piece, ...] = ()

    @property
    def num_tokens(self) -> int:
        return len(self.ids) * TOKENS_PER_ID + _length(self.open_block)


@dataclass(frozen=True)
class _Request:
    seconds: float
    prompt: Text
    answer: Piece
    session: str


class Traffic:
    """The traffic of one workload and seed, as it is generated.

    With ``answers_return``, lines have the ids of the answers, as a recording has them.
    """

    def __init__(self, family: str, seed: int, *, answers_return: bool) -> None:
        self.random = np.random.default_rng([zlib.crc32(family.encode()), seed])
        self._answers_return = answers_return
        self._num_runs = 0
        self._ids: dict[tuple[int, tuple[Piece, ...]], int] = {}
        self._requests: list[_Request] = []

    # Texts

    def fresh(self, tokens: float) -> Piece:
        """Return a piece of at least one token. None of its tokens occurred before."""
        self._num_runs += 1
        return Piece(self._num_runs, 0, max(1, int(tokens)))

    def text(self, *pieces: Piece) -> Text:
        return self.extend(Text(), *pieces)

    def extend(self, text: Text, *pieces: Piece) -> Text:
        """Return the text with the pieces appended."""
        ids = list(text.ids)
        block, missing = list(text.open_block), TOKENS_PER_ID - _length(text.open_block)
        for run, start, end in pieces:
            position = start
            while position < end:
                stop = min(end, position + missing)
                _join(block, Piece(run, position, stop))
                missing -= stop - position
                position = stop
                if not missing:
                    ids.append(self._id(ids[-1] if ids else -1, tuple(block)))
                    block, missing = [], TOKENS_PER_ID
        return Text(tuple(ids), tuple(block))

    # Requests

    def ask(self, seconds: float, prompt: Text, answer: Piece, session: object) -> Text:
        """Add a request for ``answer`` at this time. Return the prompt with the answer appended."""
        self._requests.append(_Request(seconds, prompt, answer, str(session)))
        return self.extend(prompt, answer)

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    @property
    def last_seconds(self) -> float:
        return max(request.seconds for request in self._requests)

    def lines(self) -> list[bytes]:
        """Return the requests in order of arrival, in the trace format of ``kvoxide replay``."""
        requests = sorted(self._requests, key=lambda request: request.seconds)
        return [self._line(request, requests[0].seconds) for request in requests]

    def _line(self, request: _Request, start: float) -> bytes:
        prompt = request.prompt
        num_answer_tokens = request.answer.end - request.answer.start
        record = {
            "timestamp": round((request.seconds - start) * 1000),
            "session_id": request.session,
            "input_length": prompt.num_tokens,
            "output_length": num_answer_tokens,
        }
        if self._answers_return:
            ids = self._all_ids(self.extend(prompt, request.answer))
            num_ids = math.ceil(prompt.num_tokens / TOKENS_PER_ID)
            record |= {"hash_ids": ids[:num_ids], "output_hash_ids": ids[num_ids:]}
        else:
            record |= {"hash_ids": self._all_ids(prompt)}
        return json.dumps(record).encode()

    def _all_ids(self, text: Text) -> list[int]:
        ids = list(text.ids)
        if text.open_block:
            ids.append(self._id(ids[-1] if ids else -1, text.open_block))
        return ids

    def _id(self, before: int, block: tuple[Piece, ...]) -> int:
        """Return the id of a block, which depends on all tokens up to its end."""
        return self._ids.setdefault((before, block), len(self._ids))

    # Draws

    def lognormal(self, median: float, sigma: float, least: int = 1, most: int = 10**6) -> int:
        value = median * math.exp(sigma * self.random.standard_normal())
        return int(min(most, max(least, value)))

    def exponential(self, mean: float) -> float:
        return float(self.random.exponential(mean))

    def uniform(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``, both included."""
        return int(self.random.integers(low, high + 1))

    def turns(self, mean: float, most: int) -> int:
        """Return a geometric draw of at least 1."""
        return min(most, int(self.random.geometric(1 / mean)))

    def happens(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def shuffled(self, values: Sequence[T]) -> list[T]:
        return [values[int(index)] for index in self.random.permutation(len(values))]

    def zipf(self, num_values: int, exponent: float) -> Callable[[], int]:
        """Return a draw from 0 to ``num_values`` - 1, in which 0 is the most frequent."""
        weights = np.arange(1, num_values + 1, dtype=float) ** -exponent
        bounds = np.cumsum(weights / weights.sum())
        return lambda: min(num_values - 1, int(np.searchsorted(bounds, self.random.random())))


@dataclass(frozen=True)
class Recorded:
    """Generated traffic: the lines of its trace."""

    lines: tuple[bytes, ...]

    def request_lengths(self) -> list[int]:
        """Return the tokens of each request: its prompt's and its answer's."""
        records = map(json.loads, self.lines)
        return [record["input_length"] + record["output_length"] for record in records]

    def num_distinct_tokens(self) -> int:
        """Return how many distinct tokens prompts have and, if their ids are known, answers. Equal
        prefixes count once."""
        ids: set[int] = set()
        for record in map(json.loads, self.lines):
            ids.update(record["hash_ids"], record.get("output_hash_ids", ()))
        return len(ids) * TOKENS_PER_ID

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"\n".join(self.lines)).hexdigest()[:16]

    def trace(self) -> Trace:
        trace = Trace(TOKENS_PER_ID)
        for line in self.lines:
            trace.push_line(line)
        return trace


def _length(pieces: Sequence[Piece]) -> int:
    return sum(piece.end - piece.start for piece in pieces)


def _join(block: list[Piece], piece: Piece) -> None:
    """Append the piece to the block, as part of the last piece if it continues that one."""
    if block and block[-1].run == piece.run and block[-1].end == piece.start:
        piece = Piece(piece.run, block.pop().start, piece.end)
    block.append(piece)
