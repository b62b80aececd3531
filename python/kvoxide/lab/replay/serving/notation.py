"""Step times and routers as they are written on the command line."""

from typing import Final

from kvoxide._core import ConfigError, Serving, StepTime

# How many of them are a second.
_UNITS: Final = {"ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3, "s": 1.0}
_PARTS: Final = ("base", "prefill", "context", "running")


def parse_step_time(text: str) -> StepTime:
    """Step times from ``PART=TIME``, comma separated, such as ``base=4ms,prefill=25us``.

    Parts are base, prefill, context and running; what is left out has its default. Units are ns,
    us, ms and s. Raises :class:`~kvoxide._core.ConfigError` that names what cannot be read.
    """
    parts = {
        name: parse_duration(text, value)
        for name, value in parse_pairs(
            text, f"write step times as base=4ms; the names are {', '.join(_PARTS)}"
        )
    }
    for name in parts.keys() - set(_PARTS):
        raise ConfigError(f"{text!r}: {name!r} is not a step time; it can be {', '.join(_PARTS)}")
    return StepTime(**parts)


def parse_router(text: str) -> tuple[str, dict[str, float]]:
    """A router and its weights, from ``NAME`` or ``NAME:WEIGHT=NUMBER,...``.

    Raises :class:`~kvoxide._core.ConfigError` for names and weights that do not exist.
    """
    name, _, given = text.partition(":")
    weights = {}
    if given:
        for weight, value in parse_pairs(given, "write weights as NAME:WEIGHT=NUMBER"):
            try:
                weights[weight] = float(value)
            except ValueError:
                raise ConfigError(f"{text!r}: {value!r} is not a number") from None
    Serving(router=name, weights=weights)
    return name, weights


def parse_pairs(text: str, allowed: str) -> list[tuple[str, str]]:
    """Return the names and values of ``NAME=VALUE``, comma separated. ``allowed`` says in an error
    what to write."""
    pairs = [
        (name.strip(), value.strip())
        for name, _, value in (token.partition("=") for token in text.split(","))
    ]
    names = [name for name, _ in pairs]
    for name, value in pairs:
        if not name or not value:
            raise ConfigError(f"cannot read {text!r}; {allowed}")
        if names.count(name) > 1:
            raise ConfigError(f"{text!r} gives {name} twice")
    return pairs


def parse_duration(text: str, value: str) -> float:
    """Return a time such as ``4ms``, a part of ``text``, in seconds."""
    number = value.rstrip("nuµms")
    try:
        return float(number) / _UNITS[value[len(number) :]]
    except (ValueError, KeyError):
        message = f"{value!r} is not a time; write it as 4ms; the unit can be {', '.join(_UNITS)}"
        raise ConfigError(f"{text!r}: {message}") from None
