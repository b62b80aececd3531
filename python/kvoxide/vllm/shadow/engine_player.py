"""Plays a file of ``KVOXIDE=shadow`` on kvoxide's engine, without vLLM."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter import CoordinatorCalls, ManagerCalls
from kvoxide.vllm.environment import Release, releases
from kvoxide.vllm.shadow.configuration import engine_of
from kvoxide.vllm.shadow.description import Json, outcome_digest
from kvoxide.vllm.shadow.recording import RecordingError
from kvoxide.vllm.shadow.replaying import Player

# vLLM's code computes these from the engine's reports, or other code does.
_NOT_THE_ENGINES: Final = {
    "manager.make_prefix_cache_stats",
    "manager.record_prefix_cache_stats",
    "manager.take_events",
    "block_pool.take_events",
}


class EnginePlayer(Player):
    """Plays on the engine. It ignores events and statistics, which vLLM's code creates, and which
    watched blocks were reused."""

    def __init__(self, configuration: Mapping[str, Json]) -> None:
        """Construct an engine with this configuration."""
        super().__init__(_EngineManager(configuration), str)

    def play(self, call: Json) -> Json:
        """Make one call of the engine. Skip calls that are not the engine's."""
        return {} if call["call"] in _NOT_THE_ENGINES else super().play(call)

    def agrees(self, call: Json, outcome: Json) -> bool:
        """Return whether the outcome equals vLLM's, in the parts that the engine does."""
        return not outcome or outcome_digest(outcome) == call["outcome"]

    def _new_events(self) -> Json:
        return []


class _Engine:
    """An object of vLLM's interface. Names that are not defined here are the engine's."""

    def __init__(self, engine: VllmManager) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class _EngineManager(_Engine, ManagerCalls):
    """The engine with the names of vLLM's manager."""

    def __init__(self, configuration: Mapping[str, Json]) -> None:
        release = _release_of(configuration)
        self.enable_caching = configuration["arguments"]["enable_caching"]
        super().__init__(engine_of(configuration, release))
        self.empty_kv_cache_blocks = self.engine.empty_blocks()
        self.block_pool = _EnginePool(self.engine)
        self.coordinator = _EngineCoordinator(self.engine, release)

    def get_computed_blocks_for_connector(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return *self.engine.get_computed_blocks(*args, **kwargs), False

    def finalize_partial_tail_offloads(self, request: Any) -> list[tuple[int, int, int]]:
        return self.engine.finalize_partial_tail_offloads(request, request.request_id)

    def take_kv_cache_block_copies(self) -> tuple[list[tuple[int, int]], list[Any]]:
        copies, blocks = self.engine.take_kv_cache_block_copies()
        return [(copy.src_block_id, copy.dst_block_id) for copy in copies], blocks

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self.block_pool.evict_blocks(block_ids)


class _EngineCoordinator(_Engine, CoordinatorCalls):
    """The engine with the names of vLLM's coordinator."""

    def __init__(self, engine: VllmManager, release: Release) -> None:
        super().__init__(engine)
        self.pops_null_heads = release.pops_null_heads


class _EnginePool(_Engine):
    """The engine with the names of vLLM's pool."""

    def __init__(self, engine: VllmManager) -> None:
        super().__init__(engine)
        self.blocks = _Blocks(engine.block)
        engine.set_facade(self)
        self.null_block = engine.block(0)

    def unpin_blocks(self, blocks: Iterable[Any], on_reuse: Callable[[Any], None]) -> None:
        self.engine.unpin_blocks(list(blocks))

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self.engine.evict_blocks(list(block_ids))


class _Blocks:
    def __init__(self, block: Callable[[int], Any]) -> None:
        self._block = block

    def __getitem__(self, block_id: int) -> Any:
        return self._block(block_id)


def _release_of(configuration: Mapping[str, Json]) -> Release:
    # Older files name only vLLM's version.
    release = releases.RELEASES.get(configuration.get("release", configuration["vllm"]))
    if release is None:
        raise RecordingError(
            f"the file was recorded with vLLM {configuration['vllm']}; this kvoxide supports "
            f"{', '.join(releases.RELEASES)}"
        )
    return release
