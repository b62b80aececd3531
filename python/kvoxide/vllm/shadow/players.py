"""The players of a recording. kvoxide's engine needs no vLLM. If the vLLM of the file is installed,
kvoxide's manager in it and vLLM's own play the recording too."""

from kvoxide.vllm.shadow.recording import Recording
from kvoxide.vllm.shadow.replaying import Make, Player


def engine_alone(recording: Recording) -> Player:
    """Return a player on kvoxide's engine. Raises RecordingError if it does not know the file's
    vLLM."""
    from kvoxide.vllm.shadow.engine_player import EnginePlayer

    return EnginePlayer(recording.configuration)


def in_vllm(manager_class: type | None = None) -> Make:
    """Return a player on kvoxide's manager, or on ``manager_class``, in the installed vLLM."""

    def make(recording: Recording) -> Player:
        from vllm.v1.request import RequestStatus

        from kvoxide.vllm.adapter import native_class
        from kvoxide.vllm.shadow.configuration import vllm_config

        cls = manager_class or native_class()
        arguments = dict(recording.configuration["arguments"])
        config = vllm_config(recording.configuration)
        return Player(cls(**arguments, kv_cache_config=config), lambda name: RequestStatus[name])

    return make


def stock_in_vllm(recording: Recording) -> Player:
    """Return a player on vLLM's own manager."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    # kvoxide's plugin does not replace a subclass.
    return in_vllm(type("StockManager", (KVCacheManager,), {}))(recording)
