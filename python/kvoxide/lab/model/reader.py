"""Reads a model's plan, from vLLM if it is installed, otherwise from the families."""

from dataclasses import replace
from pathlib import Path

from kvoxide._core import ConfigError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.folder import config_file, read_object
from kvoxide.lab.model.folder_kinds import require_folder, require_no_draft
from kvoxide.lab.model.from_vllm import NotAskedError, VllmPlan, ask_vllm, is_installed
from kvoxide.lab.model.plan import ModelPlan, plan_model
from kvoxide.lab.model.quantization import read_quantization
from kvoxide.lab.model.release import RELEASE

Plan = ModelPlan | VllmPlan


def read_model(
    path: Path | str, deployment: Deployment | None = None, *, ask: bool | None = None
) -> Plan:
    """Plan the KV cache of a model for ``deployment``. ``path`` is its directory or its
    ``config.json``.

    If ``ask`` is true, the installed vLLM answers; if it is false, :func:`plan_model`. With None,
    vLLM answers if it is installed. If it cannot load the model on this machine, :func:`plan_model`
    answers, and a note of the plan says why. Raises :class:`~kvoxide.ConfigError` for files that
    cannot be used, and for models that vLLM refuses.
    """
    deployment = deployment or Deployment()
    require_folder(Path(path))
    file = config_file(Path(path))
    values = read_object(file)
    require_no_draft(file, values)
    if ask is False or (ask is None and not is_installed()):
        return plan_model(path, deployment)
    read_quantization(file, values)
    try:
        return ask_vllm(Path(path), deployment)
    except NotAskedError as error:
        if ask:
            raise
        return _without_vllm(path, deployment, str(error))


def _without_vllm(path: Path | str, deployment: Deployment, reason: str) -> ModelPlan:
    """Return kvoxide's own plan, with the ``reason`` why the installed vLLM did not answer."""
    try:
        plan = plan_model(path, deployment)
    except ConfigError as error:
        raise type(error)(f"{error}. {reason}") from None
    note = f"{reason}. kvoxide used its own rules for vLLM {RELEASE} on a Hopper GPU"
    return replace(plan, why_not_asked=note)
