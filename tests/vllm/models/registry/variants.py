"""Writes five folders for a class: the same model in the forms that users have."""

from copy import deepcopy
from typing import Any
from zlib import crc32

from . import quantizations, ropes
from .classes import Fields, Origin, config_class, defaults, plain

VARIANTS = ("full", "defaults left out", "nested short", "quantization", "rope")
# The variants that have a choice.
CHOOSING = VARIANTS[2:]
Folder = dict[str, Fields]

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder")
# Transformers writes these fields. They have no meaning for any model.
_IDLE = (
    "transformers_version",
    "_name_or_path",
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "chunk_size_feed_forward",
    "problem_type",
    "id2label",
    "label2id",
    "_attn_implementation",
    "_experts_implementation",
)
_KEPT = ("architectures", "model_type", "dtype")
_FEW = 12
# Fields that users leave out of short configurations.
_DROPPED = (
    ("max_position_embeddings", "n_positions", "original_max_position_embeddings"),
    ("vocab_size", "intermediate_size", "rms_norm_eps", "hidden_act"),
    ("rope_parameters", "rope_scaling", "rope_theta"),
    ("sliding_window", "sliding_window_pattern"),
    ("layer_types",),
    ("head_dim",),
    ("num_key_value_heads",),
)


def folder(origin: Origin, variant: str, turn: int = 0) -> Folder:
    """Return the files of a variant. Its choices depend on the class's name and the turn."""
    number = crc32(f"{origin.name} {variant}{turn or ''}".encode())
    if variant == "full":
        return {"config.json": full(origin)}
    if variant == "defaults left out":
        return {"config.json": differing(origin)}
    if variant == "nested short":
        return {"config.json": short(origin, number)}
    base = full(origin) if number & 1 else differing(origin)
    found = {"config.json": base}
    number >>= 1
    text = text_part(base)
    if variant == "quantization":
        found = quantizations.add(found, text, number)
        number //= quantizations.COUNT
    else:
        ropes.add(text, _text_class(origin), number)
        number //= ropes.COUNT
    before = deepcopy(text)
    switch_windows(text, _text_class(origin), number)
    if not _is_taken(_text_class(origin), text):
        text.clear()
        text.update(before)
    return found


def full(origin: Origin) -> Fields:
    """Return every field that the class has."""
    if origin.config_class is None:
        return deepcopy(origin.given)
    made = _instance(origin)
    fields: Fields = plain(made.to_dict())
    return _without_idle({**fields, **_kept(origin)})


def differing(origin: Origin) -> Fields:
    """Return the fields that differ from the defaults of their class, including fields of parts."""
    if origin.config_class is None:
        return deepcopy(origin.given)
    return {**_differing(full(origin), origin.config_class), **_kept(origin)}


def short(origin: Origin, number: int) -> Fields:
    """Return other sizes and little else. If the class has a part for its language model, they are
    in that part."""
    base = differing(origin)
    key = text_key(full(origin))
    owner = _text_class(origin)
    if not key:
        return {**_short(base, full(origin), owner, number), **_kept(origin)}
    part = base.get(key, {"model_type": full(origin)[key].get("model_type")})
    return {**base, key: _short(part, full(origin)[key], owner, number)}


def text_key(fields: Fields) -> str | None:
    """Return the name of the part for the language model."""
    return next((key for key in _TEXT_KEYS if isinstance(fields.get(key), dict)), None)


def text_part(fields: Fields) -> Fields:
    """Return the fields of the language model: a part, or all fields."""
    key = text_key(fields)
    if key is None:
        return fields
    part: Fields = fields[key]
    return text_part(part)


def _text_class(origin: Origin) -> Any:
    """Return the class of the language model's part, or None if it is not known."""
    if origin.config_class is None:
        part = text_part(origin.given)
        return config_class(part.get("model_type"))
    made = _instance(origin)
    return type(made.get_text_config(decoder=True))


def _instance(origin: Origin) -> Any:
    given = {name: deepcopy(value) for name, value in origin.given.items() if name != "model_type"}
    return origin.config_class.from_dict({**given, "model_type": origin.given.get("model_type")})


def _kept(origin: Origin) -> Fields:
    return {name: origin.given[name] for name in _KEPT if name in origin.given}


def _without_idle(fields: Fields) -> Fields:
    return {
        name: _without_idle(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in _IDLE and not (name in ("architectures", "dtype") and value is None)
    }


def _differing(fields: Fields, owner: Any) -> Fields:
    try:
        usual = _without_idle(plain(owner().to_dict()))
    except Exception:
        return fields
    found: Fields = {}
    for name, value in fields.items():
        default = usual.get(name)
        if isinstance(value, dict) and "model_type" in value:
            part = _differing(value, _part_class(owner, name, value))
            if part.keys() - {"model_type"} or value["model_type"] != (default or {}).get(
                "model_type"
            ):
                found[name] = part
        elif name in _KEPT or name not in usual or value != default:
            found[name] = value
    return found


def _part_class(owner: Any, name: str, value: Fields) -> Any:
    found = config_class(value.get("model_type"))
    part = getattr(owner, "sub_configs", {}).get(name)
    return found or part or owner


def _short(text: Fields, whole: Fields, owner: Any, number: int) -> Fields:
    """Return the fields with other sizes, and without some fields that are optional. ``number``
    chooses them."""
    found = {name: value for name, value in text.items() if value is not None}
    if owner is not None:
        for place, names in enumerate(_DROPPED):
            if number >> place & 1:
                found = {name: value for name, value in found.items() if name not in names}
    found.update(_other_sizes(whole, owner, number >> len(_DROPPED)))
    for fewer in (_fewer_layers(found, whole, owner), {}):
        if _is_taken(owner, {**found, **fewer}):
            return {**found, **fewer}
    return found


def _other_sizes(whole: Fields, owner: Any, number: int) -> Fields:
    """Return twice the width, or the same. The heads of keys keep their number if the class's own
    number does not divide the heads."""
    names = getattr(owner, "attribute_map", None) or {}
    hidden = names.get("hidden_size", "hidden_size")
    heads = names.get("num_attention_heads", "num_attention_heads")
    sizes = [whole.get(name) for name in (hidden, heads)]
    if not all(isinstance(size, int) and size for size in sizes):
        return {}
    found = {name: whole[name] * (1 + number % 2) for name in (hidden, heads)}
    default = defaults(owner).get("num_key_value_heads")
    if isinstance(default, int) and (found[heads] % default or number & 2):
        found["num_key_value_heads"] = whole.get("num_key_value_heads", default)
    return found


def _fewer_layers(found: Fields, whole: Fields, owner: Any) -> Fields:
    """Return fewer layers, also in the lists that have an entry for each."""
    names = getattr(owner, "attribute_map", None) or {}
    layers = names.get("num_hidden_layers", "num_hidden_layers")
    count = whole.get(layers)
    if not isinstance(count, int) or count <= _FEW:
        return {}
    lists = {
        name: value[:_FEW]
        for name, value in found.items()
        if isinstance(value, list) and len(value) == count
    }
    return {**lists, layers: _FEW}


def _is_taken(owner: Any, fields: Fields) -> bool:
    """Return whether the class accepts the fields."""
    if owner is None:
        return True
    try:
        owner.from_dict(deepcopy(fields))
    except Exception:
        return False
    return True


def switch_windows(text: Fields, owner: Any, number: int) -> None:
    """Switch the windows of a class on or off, in the ways that its fields allow."""
    known = {**defaults(owner), **text}
    layers = known.get("num_hidden_layers")
    if "use_sliding_window" in known and number & 1:
        text["use_sliding_window"] = not known["use_sliding_window"]
        text["sliding_window"] = known.get("sliding_window") or 4096
        if "max_window_layers" in known and isinstance(layers, int):
            text["max_window_layers"] = (0, layers // 2, layers)[(number >> 1) % 3]
        text.pop("layer_types", None)
    elif known.get("sliding_window") and number & 2:
        text["sliding_window"] = known["sliding_window"] * 2 if number & 4 else None
    elif "sliding_window" in known and number & 1:
        text["sliding_window"] = 2048
    if (
        number & 8
        and isinstance(layers, int)
        and "sliding_attention" in str(known.get("layer_types"))
    ):
        kinds = ("full_attention", "sliding_attention", "sliding_attention")
        text["layer_types"] = [kinds[layer % 3] for layer in range(layers)]
