"""The door to a model's plan: of vLLM itself where it is installed, else of the families."""

from dataclasses import replace
from pathlib import Path

from kvoxide.model.asked import NotAskedError, VllmPlan, ask_vllm, is_installed
from kvoxide.model.deployment import Deployment
from kvoxide.model.folder import config_file, read_object
from kvoxide.model.plan import ModelPlan, plan_model
from kvoxide.model.quantization import read_quantization

Plan = ModelPlan | VllmPlan


def read_model(
    path: Path | str, deployment: Deployment | None = None, *, ask: bool | None = None
) -> Plan:
    """Plan the KV cache of the model at ``path``, its directory or its ``config.json``, served as
    ``deployment`` says.

    With ``ask``, the vLLM that is installed is asked; without, :func:`plan_model` knows. None asks
    where vLLM is installed, and falls back on the other where it could not be asked, which a note
    of the plan says. Raises :class:`~kvoxide.ConfigError` for files that cannot be used and for
    what vLLM refuses.
    """
    deployment = deployment or Deployment()
    if ask is False or (ask is None and not is_installed()):
        return plan_model(path, deployment)
    file = config_file(Path(path))
    read_quantization(file, read_object(file))
    try:
        return ask_vllm(Path(path), deployment)
    except NotAskedError as error:
        if ask:
            raise
        return replace(plan_model(path, deployment), why_not_asked=str(error))
