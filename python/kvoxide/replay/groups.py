"""KV cache groups as text: ``full:16,swa:16:1024*5``, or the name of a preset."""

import re
from dataclasses import dataclass
from typing import Final

from kvoxide._core import (
    ConfigError,
    GroupDeclaration,
    KVCacheGroupSpec,
    UnsupportedGroupError,
    group_kinds,
)

KINDS: Final[dict[str, GroupDeclaration]] = {kind.short_name: kind for kind in group_kinds()}

PRESETS: Final[dict[str, str]] = {
    "llama": "full:16",
    "gemma-3": "full:16,swa:16:1024*5",
    "gpt-oss": "full:16,swa:16:128",
    "deepseek-v4": "full:256,swa:64:128,swa:4:8,swa:8:128",
}

MAX_GROUPS: Final = 256

_GROUP: Final = re.compile(
    r"(?P<kind>[^:*]+):(?P<block_size>[0-9]{1,18})"
    r"(:(?P<window>[0-9]{1,18}))?(\*(?P<count>[0-9]{1,18}))?"
)


@dataclass(frozen=True)
class Groups:
    """KV cache groups and the text that they were written as."""

    text: str
    specs: tuple[KVCacheGroupSpec, ...]


def parse_groups(text: str) -> Groups:
    """Read ``kind:block_size[:window][*count]``, comma separated; sizes and windows in tokens.

    Kinds are those of :data:`KINDS`; the window is the size that the kind needs, for ``chunked``
    the attention chunk.
    Raises :class:`~kvoxide._core.ConfigError` that names the part at fault and what is allowed.
    """
    specs: list[KVCacheGroupSpec] = []
    for item in text.split(","):
        specs += _parse_item(item.strip())
        if len(specs) > MAX_GROUPS:
            raise ConfigError(f"{text!r} has more than {MAX_GROUPS} groups")
    return Groups(text, tuple(specs))


def preset_groups(name: str) -> Groups:
    """The groups of a preset. Raises :class:`~kvoxide._core.ConfigError` for an unknown name."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; presets are {', '.join(PRESETS)}")
    return parse_groups(PRESETS[name])


def _parse_item(item: str) -> list[KVCacheGroupSpec]:
    match = _GROUP.fullmatch(item)
    if match is None:
        raise ConfigError(
            f"cannot read the group {item!r}; write kind:block_size[:window][*count],"
            " such as full:16 or swa:16:1024*5"
        )
    kind, window = match["kind"], match["window"]
    _check_kind(item, kind, window)
    count = int(match["count"] or 1)
    if not 1 <= count <= MAX_GROUPS:
        raise ConfigError(f"{item!r}: the count after * must be 1 to {MAX_GROUPS}")
    size = None if window is None else int(window)
    return [_spec(item, kind, int(match["block_size"]), size)] * count


def _check_kind(item: str, kind: str, window: str | None) -> None:
    if kind not in KINDS:
        raise UnsupportedGroupError(
            f"{item!r}: unknown group kind {kind!r}; kinds are {', '.join(KINDS)}"
        )
    needs_window = bool(KINDS[kind].required_sizes)
    if needs_window and window is None:
        raise ConfigError(f"{item!r}: {kind} needs a window, written {kind}:block_size:window")
    if not needs_window and window is not None:
        raise ConfigError(f"{item!r}: {kind} has no window, write {kind}:block_size")


def _spec(item: str, kind: str, block_size: int, window: int | None) -> KVCacheGroupSpec:
    declared = KINDS[kind]
    try:
        return KVCacheGroupSpec(
            declared.name, block_size, **dict.fromkeys(declared.required_sizes, window)
        )
    except (ConfigError, OverflowError) as error:
        raise ConfigError(f"{item!r}: {error}") from error
