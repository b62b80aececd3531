"""Why a manager of this environment cannot be kvoxide's."""

from collections.abc import Iterable, Sequence

from kvoxide.vllm.environment import certificates, settings
from kvoxide.vllm.environment.certificates import Certificate, CertificateError
from kvoxide.vllm.environment.fallbacks import Reason
from kvoxide.vllm.environment.recognition import (
    Recognition,
    recognise,
    recognise_connector,
    recognise_host,
    recognise_primary_tier,
)
from kvoxide.vllm.environment.releases import RELEASES, Release, installed_version
from kvoxide.vllm.environment.runtime_patches import replacements
from kvoxide.vllm.environment.settings import SettingsError
from kvoxide.vllm.environment.sources import UnreadableSourcesError
from kvoxide.vllm.environment.tracked_code import (
    CONNECTOR_CODE,
    HOST_CODE,
    PRIMARY_TIER_CODE,
)


def takeover_reasons() -> list[str]:
    """Returns why no manager that is made now can be kvoxide's; empty if one can. That changes as
    other plugins are loaded."""
    if reasons := environment_reasons():
        return reasons
    replaced = replacements()
    return [_replaced(replaced)] if replaced else []


def host_reasons() -> list[str]:
    """Returns why no host tier that is made now can be kvoxide's; empty if one can. No certificate
    covers it."""
    return shadow_reasons() or _reasons(recognise_host(), HOST_CODE)


def primary_tier_reasons() -> list[str]:
    """Returns why no primary tier that is made now can be kvoxide's; empty if one can. No
    certificate covers it."""
    return shadow_reasons() or _reasons(recognise_primary_tier(), PRIMARY_TIER_CODE)


def connector_reasons() -> list[str]:
    """Returns why no offloading connector that is made now can have kvoxide's methods; empty if one
    can. No certificate covers it."""
    return shadow_reasons() or _reasons(recognise_connector(), CONNECTOR_CODE)


def _reasons(recognition: Recognition, paths: Iterable[str]) -> list[str]:
    if not recognition.is_known:
        return [_unknown(recognition)]
    if not recognition.release.has_host_tier:
        return [_no_host_tier(recognition.release)]
    replaced = replacements(paths)
    return [_replaced(replaced)] if replaced else []


def environment_reasons() -> list[str]:
    """Returns why no manager of the vLLM that is installed can be kvoxide's; empty if one can."""
    if reasons := shadow_reasons():
        return reasons
    recognition = recognise()
    if recognition.is_known:
        return []
    try:
        accepted = accepted_certificate()
    except (CertificateError, SettingsError) as error:
        return [_unknown(recognition), str(error)]
    return [] if accepted else [_unknown(recognition)]


def accepted_certificate() -> Certificate | None:
    """Returns the certificate that makes up for an unknown release; None if the release is known
    or certificates are not accepted.

    Raises :class:`~kvoxide.vllm.environment.CertificateError` if one is needed and none is valid,
    :class:`~kvoxide.vllm.environment.SettingsError` and
    :class:`~kvoxide.vllm.environment.UnreadableSourcesError`.
    """
    if recognise().is_known or not settings.current().accepts_verified:
        return None
    try:
        return certificates.find()
    except CertificateError as error:
        wanted = f"{settings.ACCEPT_VARIABLE}=verified"
        raise CertificateError(f"{wanted} has no effect: {error}") from None


def shadow_reasons() -> list[str]:
    """Returns why kvoxide's manager cannot run in shadow mode; empty if it can."""
    if problem := compiled_module_problem():
        return [problem]
    try:
        recognise()
    except UnreadableSourcesError as error:
        return [Reason(str(error), "unsupported_vllm")]
    return []


def _replaced(replaced: Sequence[str]) -> str:
    return Reason(f"another plugin changed vLLM's code: {_shortened(replaced)}", "other_plugin")


def _unknown(recognition: Recognition) -> str:
    version = installed_version()
    return Reason(
        f"vLLM {version} has other code than the known releases ({', '.join(RELEASES)}); "
        f"differences from {recognition.release.version}: {_shortened(recognition.differences)}",
        "changed_vllm" if version in RELEASES else "unsupported_vllm",
    )


def _no_host_tier(release: Release) -> str:
    others = ", ".join(other.version for other in RELEASES.values() if other.has_host_tier)
    return Reason(
        f"kvoxide supports CPU offloading of vLLM {others}, not of {release.version}",
        "unsupported_vllm",
    )


def _shortened(differences: Sequence[str]) -> str:
    shown, rest = differences[:2], len(differences) - 2
    return ", ".join(shown) + (
        f", and {rest} more (`kvoxide doctor` lists all)" if rest > 0 else ""
    )


def compiled_module_problem() -> str | None:
    """Why ``kvoxide._core`` cannot be used; None if it can."""
    try:
        import kvoxide._core  # noqa: F401
    except ImportError as error:
        return Reason(
            f"the compiled module kvoxide._core cannot be imported ({error}); reinstall kvoxide",
            "installation",
        )
    return None
