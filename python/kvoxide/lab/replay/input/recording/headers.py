"""The first lines of recorded files: what the ids stand for, and the deployment."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError, HostMemory, KVCacheGroupSpec, KvoxideError, older_rules
from kvoxide.lab.replay.input.compression import CompressedStreamError, CutOffError, decompressed
from kvoxide.lab.replay.input.groups import Groups, groups_text
from kvoxide.lab.replay.input.policies import NamedPolicy, parse_policy
from kvoxide.lab.replay.input.trace_file import TraceFileError
from kvoxide.recording_format import FORMAT_FIELD, FORMATS, PART_FIELD, RECORDING_FIELD

_MAX_TOKENS_PER_ID: Final = 2**28


@dataclass(frozen=True)
class Deployment:
    """The settings of a recorded server.

    ``started`` is in seconds since the epoch. ``groups`` is None if only vLLM knows their kinds.
    ``num_blocks`` is the size of each pool; each of ``num_ranks`` data-parallel ranks has one.
    ``block_size`` is None if vLLM chose it. Any other None was not recorded. ``rules`` are the
    settings that the scheduler passed to its manager. ``has_schedule`` says whether steps were
    recorded, ``prefix_caching`` whether prefixes were cached. ``host_memory`` are the arguments of
    :class:`~kvoxide.HostMemory` for the server's CPU memory; None without it.
    """

    vllm: str
    started: float
    groups: Groups | None
    num_blocks: int
    max_running_requests: int
    max_batched_tokens: int
    num_ranks: int
    tensor_parallel: int | None
    pipeline_parallel: int | None
    cache_dtype: str | None
    block_size: int | None
    max_model_len: int | None
    policy: NamedPolicy | None
    rules: Mapping[str, Any] | None
    has_schedule: bool
    prefix_caching: bool
    host_memory: Mapping[str, Any] | None = None

    @property
    def attention_block_size(self) -> int | None:
        """Tokens of a block of attention; None where the groups were not recorded."""
        specs = self.groups.specs if self.groups else ()
        sizes = (spec.block_size for spec in specs if not spec.kind.startswith("mamba"))
        return next(sizes, None)


@dataclass(frozen=True)
class Header:
    """The first line of a recorded file; ``started`` in seconds since the epoch."""

    path: Path
    recording: str
    started: float
    rank: int
    tokens_per_id: int
    format: int
    part: int
    fields: dict[str, Any]


def fields_of(line: bytes) -> dict[str, Any] | None:
    """The header that a line is; None for another line."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and FORMAT_FIELD in fields else None


def read_header(path: Path) -> Header | None:
    """The header of a file; None where the file was cut off before its end.

    Raises :class:`TraceFileError` for a file without one, or with one of another format.
    """
    try:
        line = first_line(path)
    except CutOffError:
        return None
    except (OSError, CompressedStreamError) as error:
        raise cannot_read(path, error) from error
    fields = fields_of(line)
    if fields is None:
        if not line.endswith(b"\n"):
            return None
        raise TraceFileError(
            f"{path}: the first line is not the header of a recording (an object with"
            f" {FORMAT_FIELD!r}). To replay another trace, name its file"
        )
    if type(fields[FORMAT_FIELD]) is not int or fields[FORMAT_FIELD] not in FORMATS:
        known = " and ".join(map(str, FORMATS))
        raise TraceFileError(
            f"{path}: the recording has format {fields[FORMAT_FIELD]!r}; this kvoxide reads formats"
            f" {known}. Install kvoxide {fields.get('kvoxide')}, which recorded it, or a newer one"
        )
    return _checked(path, fields)


def _checked(path: Path, fields: dict[str, Any]) -> Header:
    recording, started = fields.get(RECORDING_FIELD), fields.get("started")
    rank, width = fields.get("rank"), fields.get("tokens_per_id")
    if not isinstance(recording, str):
        raise _wrong_field(path, RECORDING_FIELD, recording)
    if isinstance(started, bool) or not isinstance(started, int | float) or started < 0:
        raise _wrong_field(path, "started", started)
    if type(rank) is not int or not 0 <= rank < 2**31:
        raise _wrong_field(path, "rank", rank)
    if type(width) is not int or not 1 <= width <= _MAX_TOKENS_PER_ID:
        raise _wrong_field(path, "tokens_per_id", width)
    part = fields.get(PART_FIELD, 0)
    if type(part) is not int or not 0 <= part < 2**31:
        raise _wrong_field(path, PART_FIELD, part)
    return Header(path, recording, float(started), rank, width, fields[FORMAT_FIELD], part, fields)


def deployment_of(
    header: Header, started: float, num_ranks: int, *, has_schedule: bool
) -> Deployment:
    """Return the deployment that a header describes. ``started`` is when the first of its
    schedulers started. Raises :class:`TraceFileError`."""
    fields, path = header.fields, header.path
    groups = fields.get("groups")
    try:
        specs = None if groups is None else tuple(_spec(group) for group in groups)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise _wrong_field(path, "groups", groups) from error
    return Deployment(
        vllm=str(fields.get("vllm")),
        started=started,
        groups=Groups(groups_text(specs), specs) if specs else None,
        num_blocks=_count(header, "num_blocks"),
        max_running_requests=_count(header, "max_running_requests"),
        max_batched_tokens=_count(header, "max_batched_tokens"),
        num_ranks=num_ranks,
        tensor_parallel=_optional_count(header, "tensor_parallel"),
        pipeline_parallel=_optional_count(header, "pipeline_parallel"),
        cache_dtype=_optional_name(header, "cache_dtype"),
        block_size=_optional_count(header, "given_block_size"),
        max_model_len=_optional_count(header, "max_model_len"),
        policy=_policy(header),
        rules=_rules(header),
        has_schedule=has_schedule,
        prefix_caching=_prefix_caching(header),
        host_memory=_host_memory(header),
    )


def _count(header: Header, name: str) -> int:
    count = header.fields.get(name)
    if type(count) is not int or not 1 <= count < 2**31:
        raise _wrong_field(header.path, name, count)
    return count


def _optional_count(header: Header, name: str) -> int | None:
    return None if header.fields.get(name) is None else _count(header, name)


def _prefix_caching(header: Header) -> bool:
    """Recordings without the field are of servers that cached prefixes."""
    value = header.fields.get("prefix_caching", True)
    if not isinstance(value, bool):
        raise _wrong_field(header.path, "prefix_caching", value)
    return value


def _host_memory(header: Header) -> Mapping[str, Any] | None:
    given = header.fields.get("host_memory")
    if given is None:
        return None
    try:
        HostMemory(**given)
    except (TypeError, ValueError, OverflowError, KvoxideError) as error:
        raise _wrong_field(header.path, "host_memory", given) from error
    return dict(given)


def _optional_name(header: Header, name: str) -> str | None:
    value = header.fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong_field(header.path, name, value)
    return value


def _policy(header: Header) -> NamedPolicy | None:
    name = _optional_name(header, "policy")
    try:
        return None if name is None else parse_policy(name)
    except ConfigError as error:
        raise _wrong_field(header.path, "policy", name) from error


_MIN_RULE: Final[Any] = 0
_MAX_RULE: Final[Any] = 2**31
# Names and types of what a scheduler tells its manager.
_RULES: Final[dict[str, type]] = {
    "max_model_len": int,
    "scheduler_block_size": int,
    "hash_block_size": int,
    "max_in_flight_tokens": int,
    "use_eagle": bool,
    "drops_flagged_groups": bool,
    "dcp_world_size": int,
    "num_hash_lookahead_tokens": int,
    "shared_prefix_checkpoint": bool,
    "recaches_known_tail": bool,
    "num_prefill_lookahead": int,
    "watermark": float,
    "keep_tail_below_boundary": bool,
    "num_blocks": int,
    "prefix_replay_tokens": int,
    "num_spec_tokens": int,
    "is_async": bool,
    "num_lookahead_tokens": int,
    "reserves_full_input": bool,
    "frees_late": bool,
}
# Older recordings do not have these rules.
_DEFAULT_RULES: Final[dict[str, Any]] = {"frees_late": False}


def _rules(header: Header) -> Mapping[str, Any] | None:
    given = header.fields.get("rules")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise _wrong_field(header.path, "rules", given)
    rules: dict[str, Any] = {}
    for name, kind in _RULES.items():
        value: Any = given.get(name, _DEFAULT_RULES.get(name))
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or not _MIN_RULE <= value < _MAX_RULE:
            raise _wrong_field(header.path, f"rules.{name}", value)
        rules[name] = value
    return {**rules, "older_rules": _older_rules(header, given)}


def _older_rules(header: Header, given: dict[str, Any]) -> list[str]:
    """Return the names of an older release's rules. Recordings without them are of releases that
    have none."""
    names = given.get("older_rules", [])
    if not isinstance(names, list) or not all(name in older_rules() for name in names):
        raise _wrong_field(header.path, "rules.older_rules", names)
    return names


def _spec(group: dict[str, Any]) -> KVCacheGroupSpec:
    sizes = {name: size for name, size in group.items() if name not in ("kind", "cached")}
    return KVCacheGroupSpec(group["kind"], **sizes, prefix_cacheable=group["cached"])


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The plain lines of a file, numbered from 1."""
    with path.open("rb") as source:
        yield from enumerate(decompressed(source), start=1)


def first_line(path: Path) -> bytes:
    """The first line of a file, empty if there is none."""
    return next((line for _, line in lines_of(path)), b"")


def cannot_read(path: Path, error: Exception) -> TraceFileError:
    """Why a file cannot be read, as an error."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return TraceFileError(f"cannot read {os.fspath(path)}: {reason}")


def _wrong_field(path: Path, name: str, value: Any) -> TraceFileError:  # noqa: ANN401
    return TraceFileError(f"{path}: header field {name!r} is {value!r}, which is not valid")
