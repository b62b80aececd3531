"""What tensor parallelism leaves of a layer for one rank."""

from kvoxide._core import ConfigError
from kvoxide.model.config import Fields


def share(count: int, ranks: int, what: str) -> int:
    """``count`` things in equal parts. Raises :class:`~kvoxide.ConfigError` if that cannot be."""
    if count % ranks:
        raise ConfigError(f"{count} {what} cannot be shared by {ranks} tensor parallel ranks")
    return count // ranks


def kv_heads(text: Fields, ranks: int, total: int | None = None) -> int:
    """The heads of keys and values that one rank keeps; several ranks keep the same one where
    there are fewer. ``total`` is the configuration's unless it is given."""
    heads = text.count("num_attention_heads")
    share(heads, ranks, "attention heads")
    total = total or text.count("num_key_value_heads", heads)
    if total < ranks:
        if ranks % total:
            raise ConfigError(f"{ranks} tensor parallel ranks cannot share {total} KV heads")
        return 1
    return share(total, ranks, "KV heads")


def head_size(text: Fields) -> int:
    """Elements of a head's key, and of its value."""
    size = text.optional_count("head_dim")
    size = size or text.count("hidden_size") // text.count("num_attention_heads")
    if size == 0:
        raise ConfigError(f"{text.source}: num_attention_heads is larger than hidden_size")
    return size
