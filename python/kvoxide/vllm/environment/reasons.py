"""Why no manager of this environment can be kvoxide's."""

from collections.abc import Sequence

from kvoxide.vllm.environment.recognition import Recognition, recognise
from kvoxide.vllm.environment.releases import RELEASES, installed_version
from kvoxide.vllm.environment.sources import UnreadableSourcesError


def environment_reasons() -> list[str]:
    """Why no manager of this environment can be kvoxide's; empty if one can."""
    if problem := compiled_module_problem():
        return [problem]
    try:
        recognition = recognise()
    except UnreadableSourcesError as error:
        return [str(error)]
    return [] if recognition.is_known else [_unknown(recognition)]


def _unknown(recognition: Recognition) -> str:
    return (
        f"vLLM {installed_version()} has not the code of a release that kvoxide was written for "
        f"({', '.join(RELEASES)}); from the nearest, {recognition.release.version}, it differs in "
        f"{_shortened(recognition.differences)}"
    )


def _shortened(differences: Sequence[str]) -> str:
    shown, rest = differences[:2], len(differences) - 2
    return ", ".join(shown) + (f", and {rest} more (kvoxide doctor lists them)" if rest > 0 else "")


def compiled_module_problem() -> str | None:
    """Why ``kvoxide._core`` cannot be used; None if it can."""
    try:
        import kvoxide._core  # noqa: F401
    except ImportError as error:
        return f"the compiled module kvoxide._core cannot be imported ({error}); reinstall kvoxide"
    return None
