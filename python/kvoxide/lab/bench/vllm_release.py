"""Finds a vLLM to compare with."""

from dataclasses import dataclass

from kvoxide.vllm.environment import environment_reasons, recognise, releases


@dataclass(frozen=True)
class UsableVllm:
    """The release to compare with, or ``None`` and the reason why there is none."""

    version: str | None
    why_not: str | None


def find_vllm() -> UsableVllm:
    """Return the release whose code the installed vLLM has, if kvoxide's manager can take the place
    of its own."""
    if releases.installed_version() is None:
        return UsableVllm(None, "it is not installed")
    if reasons := environment_reasons():
        return UsableVllm(None, "; ".join(reasons))
    return UsableVllm(recognise().release.version, None)
