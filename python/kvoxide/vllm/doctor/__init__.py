"""``kvoxide doctor`` checks whether a server started here would run on kvoxide.

:mod:`~kvoxide.vllm.doctor.diagnosis` starts a process of its own to see what vLLM does here
(:mod:`~kvoxide.vllm.doctor.probe`; :mod:`~kvoxide.vllm.doctor.probe_process` is that process). It
also reports which groups of a model run natively. The caller has read them
(:mod:`~kvoxide.vllm.doctor.model_group`).
"""

from kvoxide.vllm.doctor.diagnosis import Check, Diagnosis, diagnose
from kvoxide.vllm.doctor.model_group import ModelError, ModelGroup, ModelGroups

__all__ = ["Check", "Diagnosis", "ModelError", "ModelGroup", "ModelGroups", "diagnose"]
