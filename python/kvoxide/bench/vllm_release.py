"""Whether there is a vLLM to compare with."""

from dataclasses import dataclass

from kvoxide.vllm.environment import releases


@dataclass(frozen=True)
class UsableVllm:
    """The release to compare with, or ``None`` and why there is none."""

    version: str | None
    why_not: str | None


def find_vllm() -> UsableVllm:
    """The installed vLLM, if kvoxide's manager can stand in for its own."""
    version = releases.installed_version()
    if version is None:
        return UsableVllm(None, "it is not installed")
    release = releases.RELEASES.get(version)
    if release is None:
        supported = " and ".join(releases.RELEASES)
        return UsableVllm(None, f"{version} is installed, supported are {supported}")
    if releases.drift(release):
        return UsableVllm(None, f"the installed {version} is not as released; see kvoxide doctor")
    return UsableVllm(version, None)
