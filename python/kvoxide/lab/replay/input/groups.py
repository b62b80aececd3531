"""KV cache groups as text: ``full:16,swa:16:1024*5``, or the name of a preset."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

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
    "deepseek-v4.1": "mla:256,swa-mla:32:128:uncached,circular:8",
    "qwen3-next": "mamba:544*3,full:544",
    "nemotron-h": (
        "mamba:1040:num_prefill_checkpoint_blocks=1:prefill_checkpoint_alignment=1*6,full:1040"
    ),
    "kimi-linear": "mamba:1920*3,mla:1920",
}

MAX_GROUPS: Final = 256

_GROUP: Final = re.compile(
    r"(?P<kind>[^:*]+):(?P<block_size>[0-9]{1,18})"
    r"(:(?P<window>[0-9]{1,18}))?(?P<options>(:[a-z_]+(=[0-9]{1,18})?)*)"
    r"(\*(?P<count>[0-9]{1,18}))?"
)
_UNCACHED: Final = "uncached"


@dataclass(frozen=True)
class Groups:
    """KV cache groups and the text that they were written as."""

    text: str
    specs: tuple[KVCacheGroupSpec, ...]


def parse_groups(text: str) -> Groups:
    """Read ``kind:block_size[:window][:size=n...][:uncached][*count]``, comma separated; sizes and
    windows in tokens.

    :data:`KINDS` lists the kinds. The window is the size that the kind requires; for ``chunked`` it
    is the attention chunk. The sizes after it are optional sizes of the kind. ``uncached`` excludes
    the group from prefix caching, if its kind allows that.
    Raises :class:`~kvoxide._core.ConfigError` that names the part at fault and what is allowed.
    """
    specs: list[KVCacheGroupSpec] = []
    for item in text.split(","):
        specs += _parse_item(item.strip())
        if len(specs) > MAX_GROUPS:
            raise ConfigError(f"{text!r} has more than {MAX_GROUPS} groups")
    return Groups(text, tuple(specs))


def groups_text(specs: Sequence[KVCacheGroupSpec]) -> str:
    """The groups as :func:`parse_groups` reads them."""
    runs = [(text, len(list(run))) for text, run in groupby(map(_written, specs))]
    return ",".join(text if count == 1 else f"{text}*{count}" for text, count in runs)


def preset_groups(name: str) -> Groups:
    """The groups of a preset. Raises :class:`~kvoxide._core.ConfigError` for an unknown name."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; it can be {', '.join(PRESETS)}")
    return parse_groups(PRESETS[name])


def _written(spec: KVCacheGroupSpec) -> str:
    (short,) = (short for short, kind in KINDS.items() if kind.name == spec.kind)
    sizes: dict[str, Any] = {name: size for name, size in spec.sizes.items() if size}
    windows = [str(sizes.pop(name)) for name in KINDS[short].required_sizes]
    options = [f"{name}={size}" for name, size in sizes.items()]
    if not spec.prefix_cacheable and KINDS[short].prefix_caching == "optional":
        options.append(_UNCACHED)
    return ":".join([short, str(spec.block_size), *windows, *options])


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
        raise ConfigError(f"{item!r}: the count after * must be from 1 to {MAX_GROUPS}")
    sizes = dict.fromkeys(KINDS[kind].required_sizes, int(window or 0))
    options = match["options"].split(":")[1:]
    for option in options:
        if option != _UNCACHED:
            sizes |= _optional_size(item, kind, option)
    cacheable = False if _UNCACHED in options else None
    return [_spec(item, kind, int(match["block_size"]), sizes, cacheable)] * count


def _check_kind(item: str, kind: str, window: str | None) -> None:
    if kind not in KINDS:
        raise UnsupportedGroupError(
            f"{item!r}: unknown group kind {kind!r}; it can be {', '.join(KINDS)}"
        )
    needs_window = bool(KINDS[kind].required_sizes)
    if needs_window and window is None:
        raise ConfigError(f"{item!r}: {kind} needs a window; write {kind}:block_size:window")
    if not needs_window and window is not None:
        raise ConfigError(f"{item!r}: {kind} has no window; write {kind}:block_size")


def _optional_size(item: str, kind: str, option: str) -> dict[str, int]:
    name, _, size = option.partition("=")
    known = KINDS[kind].optional_sizes
    if name not in known or not size:
        raise ConfigError(
            f"{item!r}: {kind} has no {option!r}; it can have {', '.join((*known, _UNCACHED))}"
        )
    return {name: int(size)}


def _spec(
    item: str, kind: str, block_size: int, sizes: dict[str, int], cacheable: bool | None
) -> KVCacheGroupSpec:
    name = KINDS[kind].name
    try:
        return KVCacheGroupSpec(
            name, block_size, prefix_cacheable=cacheable, **dict[str, Any](sizes)
        )
    except (ConfigError, OverflowError) as error:
        raise ConfigError(f"{item!r}: {error}") from error
