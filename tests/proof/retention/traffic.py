"""Served traffic as the lines of a trace: texts of named tokens, sessions of requests, and draws
from a seed."""

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
TOKEN_SECONDS: Final = 0.012  # between two tokens of an answer, in an open loop

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


@dataclass
class _Request:
    """A request. ``delay`` is the time in seconds after the answers for which it waits. It waits
    for the requests with the numbers ``after``, or else for the previous one of its session."""

    seconds: float
    prompt: Text
    answer: Piece
    session: str
    delay: float | None = None
    after: tuple[int, ...] = ()
    ends_session: bool = False
    priority: int | None = None


class Session:
    """Requests that are sent one after the other, each some time after the last answer.

    ``seconds`` is the time of the next request in an open loop, where the next token of an answer
    takes :data:`TOKEN_SECONDS`.
    """

    def __init__(self, traffic: "Traffic", name: object, start: float) -> None:
        self.name = str(name)
        self.seconds = start
        self._traffic = traffic
        self._delay: float | None = None
        self._after: tuple[int, ...] = ()
        self._latest: int | None = None

    def ask(self, prompt: Text, answer: Piece) -> Text:
        """Add a request for ``answer``. Return the prompt with the answer appended."""
        request = _Request(
            self.seconds, prompt, answer, self.name, delay=self._delay, after=self._after
        )
        self._latest = self._traffic.add(request)
        self._delay, self._after = 0.0, ()
        self.seconds += (answer.end - answer.start) * TOKEN_SECONDS
        return self._traffic.extend(prompt, answer)

    def pause(self, seconds: float) -> None:
        """Send the next request this much later: a person thinks, or a tool runs."""
        self.seconds += seconds
        if self._delay is not None:
            self._delay += seconds

    def fork(self, name: object) -> "Session":
        """Return a session that begins when the next request of this one would be sent."""
        other = Session(self._traffic, name, self.seconds)
        other._delay = self._delay
        other._after = self._after or (() if self._latest is None else (self._latest,))
        return other

    def join(self, others: "Sequence[Session]") -> None:
        """Send the next request when the latest requests of the other sessions are answered."""
        self._after = tuple(other._latest for other in others if other._latest is not None)
        self._delay = 0.0
        self.seconds = max(other.seconds for other in (self, *others))

    def end(self) -> None:
        """Mark the latest request as the last one of the session."""
        if self._latest is not None:
            self._traffic.end_session(self._latest)


class Traffic:
    """The traffic of one workload and seed, as it is generated."""

    def __init__(self, family: str, seed: int) -> None:
        self.random = np.random.default_rng([zlib.crc32(family.encode()), seed])
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

    def session(self, name: object, start: float) -> Session:
        """Return a session whose first request is sent at this time."""
        return Session(self, name, start)

    def ask(
        self,
        seconds: float,
        prompt: Text,
        answer: Piece,
        session: object,
        *,
        priority: int | None = None,
        ends_session: bool = False,
    ) -> Text:
        """Add a request that waits for no other. Return the prompt with the answer appended."""
        self.add(
            _Request(
                seconds,
                prompt,
                answer,
                str(session),
                priority=priority,
                ends_session=ends_session,
            )
        )
        return self.extend(prompt, answer)

    def add(self, request: _Request) -> int:
        """Add a request, and return its number."""
        self._requests.append(request)
        return len(self._requests) - 1

    def end_session(self, number: int) -> None:
        self._requests[number].ends_session = True

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    @property
    def last_seconds(self) -> float:
        return max(request.seconds for request in self._requests)

    def lines(self) -> list[bytes]:
        """Return the requests in order of arrival in an open loop, in the trace format of ``kvoxide
        replay``."""
        order = sorted(range(len(self._requests)), key=lambda each: self._requests[each].seconds)
        start = self._requests[order[0]].seconds
        awaited = {number for request in self._requests for number in request.after}
        return [self._line(number, start, is_awaited=number in awaited) for number in order]

    def _line(self, number: int, start: float, *, is_awaited: bool) -> bytes:
        request = self._requests[number]
        prompt = request.prompt
        ids = self._all_ids(self.extend(prompt, request.answer))
        num_ids = math.ceil(prompt.num_tokens / TOKENS_PER_ID)
        record: dict[str, object] = {
            "timestamp": round((request.seconds - start) * 1000),
            "session_id": request.session,
            "input_length": prompt.num_tokens,
            "output_length": request.answer.end - request.answer.start,
            "hash_ids": ids[:num_ids],
            "output_hash_ids": ids[num_ids:],
        }
        if request.delay is not None:
            record["delay"] = round(request.delay * 1000)
        if request.after:
            record["wait_for"] = [str(each) for each in request.after]
        if is_awaited:
            record["request_id"] = str(number)
        if request.ends_session:
            record["session_end"] = True
        if request.priority is not None:
            record["priority"] = request.priority
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
    """Generated traffic: the lines of its trace, whose format has the waits of a closed loop."""

    lines: tuple[bytes, ...]
    format: str | None = "dynamo"

    def request_lengths(self) -> list[int]:
        """Return the tokens of each request: its prompt's and its answer's."""
        records = map(json.loads, self.lines)
        return [record["input_length"] + record["output_length"] for record in records]

    def without_session_ends(self) -> "Recorded":
        """Return the traffic of clients that do not say where a session ends."""
        records = [json.loads(line) for line in self.lines]
        num_ends = sum(record.pop("session_end", False) for record in records)
        if not num_ends:
            return self
        return Recorded(tuple(json.dumps(record).encode() for record in records), self.format)

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"\n".join(self.lines)).hexdigest()[:16]

    def trace(self) -> Trace:
        trace = Trace(TOKENS_PER_ID, format=self.format)
        for line in self.lines:
            trace.push_line(line)
        trace.finish()
        trace.close_loop()
        return trace


def _length(pieces: Sequence[Piece]) -> int:
    return sum(piece.end - piece.start for piece in pieces)


def _join(block: list[Piece], piece: Piece) -> None:
    """Append the piece to the block, as part of the last piece if it continues that one."""
    if block and block[-1].run == piece.run and block[-1].end == piece.start:
        piece = Piece(piece.run, block.pop().start, piece.end)
    block.append(piece)
