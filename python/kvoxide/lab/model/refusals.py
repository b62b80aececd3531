"""Translates refusals of Transformers into plain words."""

import re
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.precision import unknown_dtype

_MAX_REASON: Final = 400
_KIND: Final = re.compile(
    r"Field '(\w+)' expected (\w+), got (\w+) \(value: (.{0,80}?)\)(?=;|\s|$)"
)
_DTYPE: Final = re.compile(r"module 'torch' has no attribute '(.*)'")
_RULE: Final = re.compile(r"Class validation error for validator '\w+': \w+: ")
_KINDS: Final = {
    "int": "an integer",
    "float": "a number with a decimal point",
    "str": "text",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "NoneType": "null",
}
# Other names of the field in the file.
_NAMES: Final = {"rope_parameters": "rope_parameters (rope_scaling)"}


def refusal(source: str, error: Exception) -> ConfigError:
    """Return an error that names the file, the field and its allowed values. vLLM reads the file
    with Transformers too, and refuses it with ``error``."""
    import transformers

    text = " ".join(str(error).split()) or type(error).__name__
    release = f"Transformers {transformers.__version__}"
    found = _KIND.findall(text)
    if found:
        name, _, kind, value = found[0]
        name = _NAMES.get(name, name)
        value = "null" if value == "None" else f"{value} ({_KINDS.get(kind, kind)})"
        taken = [_KINDS.get(each[1], each[1]) for each in found]
        return ConfigError(
            f"{source}: {name} is {value}; {release} reads it for vLLM and accepts"
            f" {' or '.join(dict.fromkeys(taken))}. Correct {name} in the file"
        )
    dtype = _DTYPE.search(text)
    if dtype is not None:
        return unknown_dtype(source, dtype[1])
    reason = _RULE.sub("", text).strip('"')[:_MAX_REASON]
    return ConfigError(f"{source}: vLLM and {release} refuse it: {reason}. Correct the file")
