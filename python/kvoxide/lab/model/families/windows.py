"""The sliding window of each layer, decided as in the classes of vLLM.

vLLM gives all layers of a model the window of its configuration, unless ``layer_types`` has other
kinds too. A class can choose the window of each layer before that.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.fields import Fields

Windows = Callable[[Fields], Sequence[int | None]]
SLIDING: Final = "sliding_attention"
FULL: Final = "full_attention"
_FIELD: Final = "sliding_window"


def in_all_layers(text: Fields) -> list[int | None]:
    """Return the windows of a class that does not choose any itself."""
    return [_of_model(text)] * text.num_layers


def in_some_layers(text: Fields) -> list[int | None]:
    """Return the windows of a class that has one in each ``sliding_attention`` layer."""
    return _listed(text, 0)


def one_wider(text: Fields) -> list[int | None]:
    """Return the windows of a class whose layers see one token more than ``sliding_window``."""
    return _listed(text, 1)


def in_other_layers(text: Fields) -> list[int | None]:
    """Return the windows of a class that has one in every other layer, from the first on."""
    window, of_model = text.count(_FIELD), _of_model(text)
    return [of_model if layer % 2 else window for layer in range(text.num_layers)]


def of_qwen(text: Fields) -> list[int | None]:
    """Return the windows of Qwen's dense classes, which refuse a mixture unless it has no effect.

    Raises :class:`~kvoxide.ConfigError` for a mixture that vLLM does not run.
    """
    kinds = set(_kinds(text) or ())
    if len(kinds) > 1 and text.count("max_window_layers") != text.num_layers:
        raise ConfigError(
            f"{text.source}: max_window_layers and layer_types give only some layers a window; vLLM"
            " does not support that for this model"
        )
    return in_all_layers(text)


def of_several_sizes(text: Fields) -> list[int | None]:
    """Return the windows of EXAONE MoE, whose ``sliding_windows`` has a size for each layer."""
    kinds = _kinds(text)
    if kinds is None or "sliding_windows" not in text:
        return in_some_layers(text)
    sizes = text.items("sliding_windows") or []
    of_model = _of_model(text)
    layers = zip(text.of_layers("layer_types", kinds), _sizes(text, sizes), strict=True)
    return [of_model if kind == FULL or not size else size for kind, size in layers]


def _sizes(text: Fields, sizes: list[Any]) -> list[int | None]:
    for size in sizes:
        if size is not None and (type(size) is not int or size < 0):
            raise ConfigError(
                f"{text.source}: sliding_windows has {size!r}; expected a size in tokens"
            )
    return text.of_layers("sliding_windows", sizes)


def interleaved(text: Fields) -> list[int | None]:
    """Return the windows of openPangu. Its ``interleaved_sliding_window`` is one size, or a list of
    sizes that repeats."""
    name, layers = "interleaved_sliding_window", range(text.num_layers)
    value, of_model = text.get(name), _of_model(text)
    if value is None:
        return [of_model for _ in layers]
    if type(value) is int:
        return [text.count(name) for _ in layers]
    if not isinstance(value, list | tuple) or not value:
        raise ConfigError(
            f"{text.source}: {name} is {value!r}; expected a size in tokens, or a list of sizes"
        )
    for each in value:
        if each is not None and (type(each) is not int or each < 1):
            raise ConfigError(f"{text.source}: {name} has {each!r}; expected a size in tokens")
    return [value[layer % len(value)] or of_model for layer in layers]


def _listed(text: Fields, extra: int) -> list[int | None]:
    kinds, of_model = _kinds(text), _of_model(text)
    if not kinds:
        return [of_model] * text.num_layers
    kinds = text.of_layers("layer_types", kinds)
    if SLIDING not in kinds:
        return [of_model] * len(kinds)
    window = text.optional_count(_FIELD)
    own = None if window is None else window + extra
    return [own if kind == SLIDING else of_model for kind in kinds]


def _of_model(text: Fields) -> int | None:
    """Return the window of layers whose class chooses none."""
    kinds, window = _kinds(text), text.optional_count(_FIELD)
    if kinds is not None and any(kind != SLIDING for kind in kinds):
        return None
    if window and not text.is_whole and text.get("use_sliding_window") is False:
        raise ConfigError(
            f"{text.source}: sliding_window is {window}, but use_sliding_window is false. The"
            " model's own code decides which one counts, and kvoxide does not execute that code. To"
            " plan without windows, remove sliding_window"
        )
    return window


def _kinds(text: Fields) -> list[Any] | None:
    return text.items("layer_types")
