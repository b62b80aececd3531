"""Why no manager of this environment can be kvoxide's."""

from collections.abc import Sequence

from kvoxide.vllm.environment import releases


def environment_reasons() -> list[str]:
    """Why no manager of this environment can be kvoxide's; empty if one can."""
    if problem := compiled_module_problem():
        return [problem]
    release = releases.current()
    if release is None:
        return [
            f"vLLM {releases.installed_version()} is not a release that it was written for "
            f"({', '.join(releases.RELEASES)})"
        ]
    if drift := releases.drift(release):
        return [f"this vLLM {release.version} is not as released: {_shortened(drift)}"]
    return []


def _shortened(drift: Sequence[str]) -> str:
    shown, rest = drift[:2], len(drift) - 2
    return ", ".join(shown) + (f", and {rest} more (kvoxide doctor lists them)" if rest > 0 else "")


def compiled_module_problem() -> str | None:
    """Why ``kvoxide._core`` cannot be used; None if it can."""
    try:
        import kvoxide._core  # noqa: F401
    except ImportError as error:
        return f"the compiled module kvoxide._core cannot be imported ({error}); reinstall kvoxide"
    return None
