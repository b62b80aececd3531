"""The share of a layer that one rank has with tensor parallelism."""

from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.fields import Fields

_ENCODER_HEADS: Final = ("num_heads", "num_attention_heads", "num_key_value_heads")
# Names of the same field, in the order in which vLLM looks for them.
_KV_HEADS: Final = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)


def share(count: int, ranks: int, what: str) -> int:
    """Return the size of equal parts of ``count`` things. Raises :class:`~kvoxide.ConfigError` if
    equal parts are impossible."""
    if count % ranks:
        raise ConfigError(
            f"{ranks} tensor parallel ranks cannot share {count} {what}; use a number of ranks that"
            f" divides {count}"
        )
    return count // ranks


def require_shared_encoder(whole: Fields, ranks: int, name: str = "vision_config") -> None:
    """Raise :class:`~kvoxide.ConfigError` if ranks cannot share the heads of an encoder equally."""
    part = whole.get(name)
    if part is None or isinstance(part, str | int | float | list):
        return
    encoder = whole.part(name)
    for field in _ENCODER_HEADS:
        heads = encoder.get(field) if encoder.has(field) else None
        if type(heads) is int and heads > 0:
            share(heads, ranks, "heads of the encoder")


def kv_heads(text: Fields, ranks: int, total: int | None = None) -> int:
    """Return the heads of keys and values that one rank keeps. If there are fewer heads than ranks,
    several ranks keep the same one. ``total`` defaults to the configuration's."""
    heads = text.count("num_attention_heads")
    share(heads, ranks, "attention heads")
    total = total or _total(text, heads)
    if heads % total:
        raise ConfigError(
            f"{text.source}: num_attention_heads is {heads}; it must be a multiple of the {total}"
            " KV heads"
        )
    if total < ranks:
        if ranks % total:
            raise ConfigError(
                f"{ranks} tensor parallel ranks cannot share {total} KV heads; use a multiple of"
                f" {total}"
            )
        return 1
    return share(total, ranks, "KV heads")


def _total(text: Fields, heads: int) -> int:
    name = next((name for name in _KV_HEADS if text.has(name)), None)
    if name is None:
        return text.count("num_key_value_heads", heads)
    if text.get(name) is None:
        raise ConfigError(
            f"{text.source} has no {name}, and its configuration class has no default. vLLM refuses"
            f" it then; add {name} to the file"
        )
    return text.count(name)


def head_size(text: Fields) -> int:
    """Return the elements of a head's key, and of its value."""
    size = text.optional_count("head_dim")
    size = size or text.count("hidden_size") // text.count("num_attention_heads")
    if size == 0:
        raise ConfigError(
            f"{text.source}: num_attention_heads is larger than hidden_size; correct the file"
        )
    return size
