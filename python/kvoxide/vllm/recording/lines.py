"""Turns events into lines of JSON. Of a request, only lengths, times and numbers of blocks
remain."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from kvoxide._core_vllm import VllmBlockNumbers, VllmGrantedHints
from kvoxide.outcomes import by_name
from kvoxide.vllm.recording.schedule import ScheduledStep


class EndedRequest(NamedTuple):
    """The data of a request's line. Lengths are in tokens, ``arrival_time`` in seconds since the
    epoch.

    ``block_hashes`` is the request's own list, which no longer changes. ``num_offered_tokens`` is
    how many tokens the request offers to CPU memory when it ends, if these are more than its
    computed tokens.
    """

    request_id: str
    arrival_time: float
    num_prompt_tokens: int
    num_tokens: int
    block_hashes: list[bytes]
    status: Any
    sampling_params: Any
    session_id: Any
    kv_hints: Any
    num_computed_tokens: int
    skips_cache: bool
    num_offered_tokens: int


def step_line(duration: float, step: ScheduledStep) -> bytes:
    """Return the line of a step. The duration is in seconds. A request with one scheduled token, in
    addition to its drafts, counts as decoding."""
    return b'{"duration":%.7f,"prefill_tokens":%d,"context_tokens":%d,"running":%d}\n' % (
        duration,
        step.num_tokens - step.num_single() - step.num_drafted,
        sum(step.starts) + sum(step.admitted_starts),
        len(step.tokens),
    )


class RequestLines:
    """Creates the lines of requests. In them, equal ids mean equal blocks."""

    def __init__(
        self, tokens_per_id: int, started: float, max_priority: int, *, has_samples: bool
    ) -> None:
        """Start without requests. ``started`` is in seconds since the epoch. ``max_priority`` is
        the highest priority that a request may get. ``has_samples`` is whether the server's
        retention samples blocks."""
        self._width = tokens_per_id
        self._started = started
        self._hints = VllmGrantedHints(max_priority)
        self._numbers = VllmBlockNumbers(has_samples=has_samples)

    def line(self, ended: EndedRequest, number: int, outcomes: Sequence[int] | None) -> bytes:
        """Return the line of the request with a number, after a line of its new blocks that are
        sampled. A block that was cached, or offered to CPU memory, has the number of its hash.
        If the last block of a prompt was not filled, it has a unique number. ``outcomes`` are the
        tokens of the prompt by outcome, or None."""
        num_generated = ended.num_tokens - ended.num_prompt_tokens
        # The last generated token is never computed, so its block is never cached.
        num_computed = ended.num_tokens - (num_generated > 0)
        if ended.num_computed_tokens:
            num_computed = min(num_computed, ended.num_computed_tokens)
        num_offered = min(ended.num_offered_tokens, ended.num_tokens)
        num_cached = max(num_computed, num_offered, ended.num_prompt_tokens) // self._width
        prompt_ids, output_ids = self._numbers.of_request(
            ended.block_hashes,
            min(num_cached, len(ended.block_hashes)),
            -(-ended.num_prompt_tokens // self._width),
        )
        timestamp = max(0.0, (ended.arrival_time - self._started) * 1e3)
        return self._sampled_line() + (
            b'{"request":%d,"timestamp":%.3f,"input_length":%d,"output_length":%d,"hash_ids":%b,'
            b'"output_hash_ids":%b,"status":"%b"%b}\n'
        ) % (
            number,
            timestamp,
            ended.num_prompt_tokens,
            num_generated,
            prompt_ids,
            output_ids,
            ended.status.name.removeprefix("FINISHED_").lower().encode(),
            _further_fields(self._hints.of_request(ended))
            + (b',"skips_cache":true' if ended.skips_cache else b"")
            + _outcomes(outcomes, ended.num_prompt_tokens),
        )

    def _sampled_line(self) -> bytes:
        if not any(sampled := self._numbers.take_sampled()):
            return b""
        return json.dumps({"sampled": sampled}, separators=(",", ":")).encode() + b"\n"


def _further_fields(fields: dict[str, Any]) -> bytes:
    """Return fields in JSON, each after a comma."""
    if not fields:
        return b""
    return b",%b" % json.dumps(fields, separators=(",", ":"))[1:-1].encode()


def _outcomes(counts: Sequence[int] | None, num_prompt_tokens: int) -> bytes:
    """Return the outcomes of a prompt as a further field. A prompt that grew after it was admitted
    has none."""
    if counts is None or sum(counts) != num_prompt_tokens:
        return b""
    named = {name: count for name, count in by_name(counts).items() if count}
    return b',"outcomes":%b' % json.dumps(named, separators=(",", ":")).encode()
