"""Reads which kinds of KV cache groups a model will have, in the same way as
``kvoxide replay --model``."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from kvoxide.vllm.doctor.model_group import ModelError, ModelGroup, ModelGroups
from kvoxide.vllm.environment import compiled_module_problem

if TYPE_CHECKING:
    from kvoxide.lab.model import Plan


def read_model_groups(path: Path, *, ask: bool | None = None) -> ModelGroups:
    """Return the kinds of the model at ``path``, its directory or its ``config.json``. There are
    none if the class is unknown. ``ask`` has the meaning that it has in
    :func:`kvoxide.lab.model.read_model`.

    Raises :class:`ModelError`.
    """
    if (problem := compiled_module_problem()) is not None:
        raise ModelError(f"the model cannot be read: {problem}")
    from kvoxide import ConfigError
    from kvoxide.lab.model import UnknownModelError, read_model

    try:
        return _of_plan(read_model(path, ask=ask))
    except UnknownModelError as error:
        return ModelGroups((), notes=(str(error),))
    except ConfigError as error:
        raise ModelError(str(error)) from None


def _of_plan(plan: "Plan") -> ModelGroups:
    layers: Counter[str] = Counter()
    for kind, count in zip(plan.kinds, plan.layers_per_group, strict=True):
        layers[kind] += count
    because = plan.asked or plan.architecture
    groups = [ModelGroup(kind, count, because) for kind, count in layers.items()]
    return ModelGroups(tuple(groups), plan.hit_tokens, plan.notes)
