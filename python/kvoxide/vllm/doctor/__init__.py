"""``kvoxide doctor``: would a server that is started here run on kvoxide?

:mod:`~kvoxide.vllm.doctor.diagnosis` asks a process of its own what vLLM does here
(:mod:`~kvoxide.vllm.doctor.probe`; :mod:`~kvoxide.vllm.doctor.probe_process` is that process), and
for a model what kinds of groups it will have (:mod:`~kvoxide.vllm.doctor.model_groups`).
"""

from kvoxide.vllm.doctor.diagnosis import Check, Diagnosis, diagnose
from kvoxide.vllm.doctor.model_group import ModelError, ModelGroup, ModelGroups

__all__ = ["Check", "Diagnosis", "ModelError", "ModelGroup", "ModelGroups", "diagnose"]
