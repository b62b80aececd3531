"""Token sequences in a form short enough to print, and a family tree of shared prefixes."""

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

TOKENS_PER_STREAM = 1 << 16
ECHOED_STREAMS = (1, 2)


class Segment(NamedTuple):
    """``length`` consecutive tokens of one endless stream."""

    stream: int
    start: int
    length: int


Segments: TypeAlias = tuple[Segment, ...]


def tokens_of(segments: Sequence[Segment]) -> list[int]:
    tokens: list[int] = []
    for stream, start, length in segments:
        first = stream * TOKENS_PER_STREAM + start
        tokens.extend(range(first, first + length))
    return tokens


def length_of(segments: Sequence[Segment]) -> int:
    return sum(segment.length for segment in segments)


def prefix_of(segments: Sequence[Segment], num_tokens: int) -> Segments:
    prefix: list[Segment] = []
    for stream, start, length in segments:
        taken = min(length, num_tokens)
        if taken > 0:
            prefix.append(Segment(stream, start, taken))
        num_tokens -= taken
    return tuple(prefix)


class PromptFamily:
    """Draws prompts that continue, repeat or leave earlier ones at any point."""

    def __init__(self, rng: random.Random, cuts: Sequence[int], longest: int) -> None:
        self._rng = rng
        self._cuts = cuts
        self._longest = longest
        self._known: list[Segments] = []
        self._num_streams = len(ECHOED_STREAMS)

    def new_stream(self) -> int:
        self._num_streams += 1
        return self._num_streams

    def remember(self, segments: Segments) -> None:
        self._known.append(segments)
        if len(self._known) > 24:
            self._known.pop(self._rng.randrange(12))

    def draw(self) -> Segments:
        prompt = self._draw()
        self.remember(prompt)
        return prompt

    def draw_echo(self) -> Segments:
        """Return a prefix of one of two streams. The output continues this stream."""
        return (Segment(self._rng.choice(ECHOED_STREAMS), 0, self._draw_length()),)

    def _draw(self) -> Segments:
        if not self._known or self._rng.random() < 0.08:
            return self._extend((), self._draw_length())
        parent = self._rng.choice(self._known[-8:] if self._rng.random() < 0.6 else self._known)
        if self._rng.random() < 0.3:
            return prefix_of(parent, max(1, self._draw_cut(length_of(parent))))
        if self._rng.random() < 0.2:
            return prefix_of(parent, self._longest)
        shared = prefix_of(parent, self._draw_cut(length_of(parent)))
        return self._extend(shared, max(self._draw_length(), length_of(shared) + 1))

    def _extend(self, prefix: Segments, num_tokens: int) -> Segments:
        missing = num_tokens - length_of(prefix)
        extended = (*prefix, Segment(self.new_stream(), 0, max(missing, 0)))
        return prefix_of(extended, min(num_tokens, self._longest))

    def _draw_length(self) -> int:
        anywhere = self._rng.randint(1, self._longest)
        return max(1, self._draw_cut(anywhere)) if self._rng.random() < 0.5 else anywhere

    def _draw_cut(self, num_tokens: int) -> int:
        if self._rng.random() < 0.25:
            return self._rng.randint(0, num_tokens)
        multiple = self._rng.choice(self._cuts)
        cut = self._rng.randint(0, num_tokens // multiple) * multiple
        if self._rng.random() < 0.5:
            cut = num_tokens // multiple * multiple
        return min(max(1, cut + self._rng.choice((-1, 0, 0, 0, 1))), self._longest)
