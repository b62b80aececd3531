"""``KVOXIDE=shadow``: vLLM's manager decides, kvoxide's gets the same calls, and a difference can
be played again.

A server then gets the manager of :mod:`~kvoxide.vllm.shadow.shadow`. It makes each call twice
(:mod:`~kvoxide.vllm.shadow.step`) and keeps it (:mod:`~kvoxide.vllm.shadow.recorder`,
:mod:`~kvoxide.vllm.shadow.description`, :mod:`~kvoxide.vllm.shadow.configuration`). With
``KVOXIDE_HOST=shadow``, it gets the offloading connector of :mod:`~kvoxide.vllm.shadow.host`.
``kvoxide shadow`` reads the file (:mod:`~kvoxide.vllm.shadow.recording`) and plays it
(:mod:`~kvoxide.vllm.shadow.replaying`) on each available manager
(:mod:`~kvoxide.vllm.shadow.players`, :mod:`~kvoxide.vllm.shadow.engine_player`).

vLLM and the compiled module are imported with the managers.
"""

from kvoxide.vllm.shadow.description import Json
from kvoxide.vllm.shadow.players import engine_alone, in_vllm, stock_in_vllm
from kvoxide.vllm.shadow.recording import Recording, RecordingError
from kvoxide.vllm.shadow.replaying import Finding, Make, replay

__all__ = [
    "Finding",
    "Json",
    "Make",
    "Recording",
    "RecordingError",
    "connector_shadow_class",
    "engine_alone",
    "in_vllm",
    "replay",
    "shadow_class",
    "stock_in_vllm",
]


def shadow_class() -> type:
    """Return the class that a server gets with ``KVOXIDE=shadow``."""
    from kvoxide.vllm.shadow.shadow import ShadowManager

    return ShadowManager


def connector_shadow_class() -> type:
    """Return the class that replaces vLLM's connector with ``KVOXIDE_HOST=shadow``."""
    from kvoxide.vllm.shadow.host import ShadowConnectorScheduler

    return ShadowConnectorScheduler
