"""Describes kvoxide in an API server whose engines send no reports."""

from kvoxide.vllm.environment import releases, settings
from kvoxide.vllm.metrics.definitions import PARTS
from kvoxide.vllm.metrics.report import Values


def values_without_engine() -> Values:
    """Return the values of a server whose engines send no reports, because ``KVOXIDE=off`` and
    nothing is recorded. There are none if engines send reports."""
    values = Values()
    if engines_report():
        return values
    from kvoxide import __version__

    values.gauge(
        "kvoxide_info",
        1,
        version=__version__,
        vllm=releases.installed_version() or "unknown",
        code_of="",
        mode="off",
        policy="vllm",
        groups="",
    )
    for part in PARTS:
        values.gauge("kvoxide_active", 0, part=part)
    return values


def engines_report() -> bool:
    """Return whether engines with this environment send reports."""
    return settings.current_mode() != "off" or settings.recording_folder() is not None
