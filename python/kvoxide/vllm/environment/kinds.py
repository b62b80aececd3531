"""Kinds of KV cache groups by the engine's names."""


def native_kinds() -> tuple[str, ...]:
    """The kinds that kvoxide manages; every other kind is vLLM's. None without the compiled module,
    which declares them."""
    try:
        from kvoxide._core import group_kinds
    except ImportError:
        return ()
    return tuple(kind.name for kind in group_kinds())
