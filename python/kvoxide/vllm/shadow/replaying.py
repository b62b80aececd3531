"""Plays a recording again, to see whether its difference still occurs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from kvoxide.vllm.environment import Settings, settings
from kvoxide.vllm.shadow.description import (
    Json,
    describe,
    events_digest,
    exception_name,
    outcome_digest,
)
from kvoxide.vllm.shadow.recording import DAMAGE, Recording, RecordingError

Make: TypeAlias = Callable[[Recording], "Player"]

# The types that a recording may name as an argument.
_KINDS: Final = (
    "hash",
    "block",
    "block_list",
    "blocks",
    "request",
    "request_id",
    "set",
    "callback",
)


@dataclass(frozen=True)
class Finding:
    """The first call in which a manager differed from vLLM's."""

    index: int
    """Number of the call, from 0."""
    call: Json
    outcome: Json
    """The manager's result instead."""


def replay(recording: Recording, make: Make) -> Finding | None:
    """Play all calls on a new manager. Return its first difference from vLLM's manager, or None.

    Raises :class:`RecordingError` if the first calls are no longer in the file, or if it is
    damaged.
    """
    if recording.dropped_calls:
        raise RecordingError(
            f"the file lacks the first {recording.dropped_calls} calls, so it cannot be played; "
            "increase KVOXIDE_SHADOW_CALLS and record again"
        )
    with settings.using(Settings("shadow")):
        try:
            player = make(recording)
        except (KeyError, TypeError) as error:
            raise RecordingError(f"the configuration in the file is damaged: {error!r}") from error
    for index, call in enumerate(recording.calls):
        try:
            outcome = player.play(call)
        except DAMAGE as error:
            raise RecordingError(f"call {index + 1} of the file is damaged: {error!r}") from error
        if not player.agrees(call, outcome):
            return Finding(index, call, outcome)
    return None


class Player:
    """Plays calls on a manager with vLLM's interface."""

    def __init__(self, manager: Any, statuses: Callable[[str], Any]) -> None:
        """Play on ``manager``. ``statuses`` converts the name of a request's status to the
        status."""
        self._manager = manager
        self._statuses = statuses
        self._requests: dict[str, Any] = {}
        self._num_events = 0
        self._reused: list[int] = []

    def play(self, call: Json) -> Json:
        """Make one call, and return its outcome in the shadow's form."""
        if "state" in call:
            self._update_request(call["state"])
        role, _, name = call["call"].partition(".")
        target = self._manager if role == "manager" else getattr(self._manager, role)
        self._reused = []
        try:
            arguments = {key: self._value(value) for key, value in call["arguments"].items()}
            outcome = {"result": describe(getattr(target, name)(**arguments))}
        except Exception as error:
            outcome = {"raises": exception_name(error)}
        outcome["free_blocks"] = self._manager.block_pool.get_num_free_blocks()
        outcome["events"] = self._new_events()
        outcome["reused"] = self._reused
        return outcome

    def agrees(self, call: Json, outcome: Json) -> bool:
        """Return whether the outcome equals vLLM's."""
        return bool(
            outcome_digest(outcome) == call["outcome"]
            and events_digest(outcome) == call.get("events")
        )

    def _update_request(self, state: Mapping[str, Json]) -> None:
        request = self._requests.setdefault(
            state["request"], SimpleNamespace(**_EMPTY_REQUEST, request_id=state["request"])
        )
        hashes = [] if state["first_new_hash"] == 0 else request.block_hashes
        hashes.extend(map(bytes.fromhex, state["new_hashes"]))
        vars(request).update(state)
        request.block_hashes = hashes
        request.status = self._statuses(state["status"])
        request.all_token_ids = range(state["num_tokens"])

    def _value(self, value: Json) -> Any:
        if isinstance(value, list):
            return tuple(map(self._value, value))
        if not isinstance(value, dict):
            return value
        (kind, content), *_ = value.items()
        if kind not in _KINDS:
            raise ValueError(f"{kind!r} is not a kind of argument")
        return getattr(self, f"_{kind}")(content)

    def _hash(self, content: str) -> bytes:
        return bytes.fromhex(content)

    def _block(self, content: int) -> Any:
        return self._manager.block_pool.blocks[content]

    def _block_list(self, content: list[int]) -> list[Any]:
        return [self._block(block_id) for block_id in content]

    def _blocks(self, content: list[list[int]]) -> Any:
        groups = tuple(self._block_list(ids) for ids in content)
        return self._manager.create_kv_cache_blocks(groups)

    def _request(self, content: str) -> Any:
        return self._requests[content]

    def _request_id(self, content: str) -> str:
        return content

    def _set(self, content: list[Any]) -> set[Any]:
        return set(content)

    def _callback(self, content: bool) -> Callable[[Any], None]:
        return lambda block: self._reused.append(block.block_id)

    def _new_events(self) -> Json:
        pool = self._manager.block_pool
        if not pool.enable_kv_cache_events:
            return []
        if hasattr(pool, "notify_observers"):
            pool.notify_observers()
        queue = pool.kv_event_queue
        first = min(self._num_events, len(queue))
        self._num_events = len(queue)
        return [describe(event) for event in queue[first:]]


_EMPTY_REQUEST: dict[str, Any] = {
    "cache_salt": None,
    "kv_cache_report_mode": "incremental",
    "lora_request": None,
    "mm_features": [],
    "prompt_embeds": None,
    "session_id": None,
}
