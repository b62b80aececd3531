"""Play a file of ``KVOXIDE=shadow`` again and see whether its difference shows.

Three managers can play it: kvoxide's engine, which needs no vLLM (``engine_player``), and where the
vLLM of the file is installed, kvoxide's manager in it and vLLM's own.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from kvoxide.vllm.environment import Settings, settings
from kvoxide.vllm.shadow.recording import (
    FORMAT,
    Json,
    describe,
    events_digest,
    exception_name,
    outcome_digest,
)

Make: TypeAlias = Callable[["Recording"], "Player"]


# What reading a file that is no recording, or a damaged one, ends in.
_DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError)

# What a recording may name: a file decides over no other attribute.
_ROLES: Final = ("manager", "block_pool", "coordinator")
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


class RecordingError(ValueError):
    """The file is not a recording, is damaged, or cannot be played from its start."""


@dataclass(frozen=True)
class Recording:
    """A file of ``KVOXIDE=shadow``."""

    configuration: Mapping[str, Json]
    calls: list[Json]
    difference: Json
    dropped_calls: int

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read a file. Raises :class:`RecordingError`, and :class:`OSError` if there is none."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise RecordingError(
                    f"{path} has format {content['format']}; this kvoxide reads format {FORMAT}"
                )
            recording = cls(**{name: content[name] for name in cls.__dataclass_fields__})
            recording._check()
        except RecordingError:
            raise
        except _DAMAGE as error:
            raise RecordingError(f"{path} is not a kvoxide shadow recording: {error!r}") from None
        return recording

    def _check(self) -> None:
        """Raise one of ``_DAMAGE`` unless the parts are there that every reader asks for."""
        for name in ("kvoxide", "vllm", "num_blocks", "groups", "arguments"):
            self.configuration[name]
        len(self.configuration["groups"])
        for name in ("what", "call", "vllm", "kvoxide"):
            self.difference[name]
        for call in self.calls:
            role, _, name = call["call"].partition(".")
            if role not in _ROLES or not name.isidentifier() or name.startswith("_"):
                raise RecordingError(f"{call['call']!r} is no call of a scheduler or a connector")
            call["arguments"].items()
            call["outcome"]
        int(self.dropped_calls)


@dataclass(frozen=True)
class Finding:
    """Where a manager first did something else than vLLM's had done."""

    index: int
    """Number of the call, from 0."""
    call: Json
    outcome: Json
    """What the manager did instead."""


def replay(recording: Recording, make: Make) -> Finding | None:
    """Play all calls on a new manager; None if it does what vLLM's manager had done.

    Raises :class:`RecordingError` if the first calls are no longer in the file, or it is damaged.
    """
    if recording.dropped_calls:
        raise RecordingError(
            f"the first {recording.dropped_calls} calls are not in the file, so it cannot be "
            "played; set KVOXIDE_SHADOW_CALLS higher and record again"
        )
    with settings.using(Settings("shadow")):
        try:
            player = make(recording)
        except (KeyError, TypeError) as error:
            raise RecordingError(f"its configuration is damaged: {error!r}") from error
    for index, call in enumerate(recording.calls):
        try:
            outcome = player.play(call)
        except _DAMAGE as error:
            raise RecordingError(f"call {index + 1} of the file is damaged: {error!r}") from error
        if not player.agrees(call, outcome):
            return Finding(index, call, outcome)
    return None


class Player:
    """Plays calls on a manager with vLLM's interface."""

    def __init__(self, manager: Any, statuses: Callable[[str], Any]) -> None:
        """Play on ``manager``; ``statuses`` turns the name of a request's status into it."""
        self._manager = manager
        self._statuses = statuses
        self._requests: dict[str, Any] = {}
        self._num_events = 0
        self._reused: list[int] = []

    def play(self, call: Json) -> Json:
        """Make one call; its outcome as the shadow describes it."""
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
        """Whether this is what vLLM's manager did."""
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
            raise ValueError(f"{kind!r} is no kind of argument")
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
        if hasattr(pool, "settle"):
            pool.settle()
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


def in_vllm(manager_class: type | None = None) -> Make:
    """kvoxide's manager, or ``manager_class``, in the vLLM that is installed."""

    def make(recording: Recording) -> Player:
        from vllm.v1.request import RequestStatus

        from kvoxide.vllm.adapter.manager import native_class

        cls = manager_class or native_class()
        arguments = dict(recording.configuration["arguments"])
        config = _vllm_config(recording.configuration)
        return Player(cls(**arguments, kv_cache_config=config), lambda name: RequestStatus[name])

    return make


def stock_in_vllm(recording: Recording) -> Player:
    """vLLM's own manager."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    # A subclass of its own is what kvoxide's plugin leaves alone.
    return in_vllm(type("StockManager", (KVCacheManager,), {}))(recording)


def _vllm_config(configuration: Mapping[str, Json]) -> Any:
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.kv_cache_interface import KVCacheConfig as VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec as VllmGroup

    class Config(VllmConfig):  # type: ignore[misc]
        needs_kv_cache_zeroing = configuration["needs_kv_cache_zeroing"]

    register_all_kvcache_specs(None)
    return Config(
        num_blocks=configuration["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[
            VllmGroup([f"layer.{i}"], _vllm_spec(group), is_eagle_group=group["is_eagle_group"])
            for i, group in enumerate(configuration["groups"])
        ],
        prefix_cache_retention_interval=configuration["retention_interval"],
    )


def _vllm_spec(group: Mapping[str, Json]) -> Any:
    import torch
    from vllm.v1 import kv_cache_interface as interface

    from kvoxide.vllm.adapter.support import NATIVE_SPECS

    (name,) = (name for name, native in NATIVE_SPECS.items() if native[0] == group["kind"])
    fields = {"block_size": group["block_size"]}
    for field in ("sliding_window", "attention_chunk_size"):
        if group[field] is not None:
            fields[field] = group[field]
    if group["sliding_window"] is not None:
        fields["extra_retained_tokens"] = group["extra_retained_tokens"]
    if not group["prefix_cacheable"]:
        fields["bounded_replay"] = True
    # The size of a head keeps groups apart that were apart.
    head_size = 64 + group["layout"]
    return getattr(interface, name)(
        num_kv_heads=1, head_size=head_size, dtype=torch.float16, **fields
    )
