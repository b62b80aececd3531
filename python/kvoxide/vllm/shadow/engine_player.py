"""Play a file of ``KVOXIDE=shadow`` on kvoxide's engine, where there is no vLLM."""

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from kvoxide._core import KVCacheConfig, KVCacheGroupSpec, Policy, VllmManager
from kvoxide.vllm.environment import Release, releases
from kvoxide.vllm.shadow.recording import Json, outcome_digest
from kvoxide.vllm.shadow.replaying import Player, Recording, RecordingError

# Made by vLLM's code from what the engine reports, or by code that is not the engine's.
_NOT_THE_ENGINES: Final = {
    "manager.make_prefix_cache_stats",
    "manager.record_prefix_cache_stats",
    "manager.take_events",
    "block_pool.take_events",
    "manager.take_boundary_state_offloads",
    "manager.take_kv_cache_block_copies",
    "manager.finalize_partial_tail_offloads",
}


def engine_alone(recording: Recording) -> "EnginePlayer":
    """kvoxide's engine. Raises RecordingError if the file's vLLM is not one it knows."""
    return EnginePlayer(recording.configuration)


class EnginePlayer(Player):
    """Plays on the engine. Events and statistics, which vLLM's code makes, are passed over, and so
    is which watched blocks were reused."""

    def __init__(self, configuration: Mapping[str, Json]) -> None:
        """Make an engine of this configuration."""
        super().__init__(_EngineManager(configuration), str)

    def play(self, call: Json) -> Json:
        """Make one call that is the engine's; nothing for others."""
        return {} if call["call"] in _NOT_THE_ENGINES else super().play(call)

    def agrees(self, call: Json, outcome: Json) -> bool:
        """Whether this is what vLLM's manager did, as far as the engine does it."""
        return not outcome or outcome_digest(outcome) == call["outcome"]

    def _new_events(self) -> Json:
        return []


class _EngineManager:
    """The engine under the names of vLLM's manager, pool and coordinator. What is not defined here
    has the engine's own name."""

    def __init__(self, configuration: Mapping[str, Json]) -> None:
        release = releases.RELEASES.get(configuration["vllm"])
        if release is None:
            raise RecordingError(
                f"recorded with vLLM {configuration['vllm']}; this kvoxide knows "
                f"{', '.join(releases.RELEASES)}"
            )
        self._release = release
        self._enable_caching = configuration["arguments"]["enable_caching"]
        self._engine = _make_engine(configuration, release)
        self.empty_kv_cache_blocks = self._engine.empty_blocks()
        self.block_pool = _EnginePool(self._engine)
        self.coordinator = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def create_kv_cache_blocks(self, blocks: tuple[list[Any], ...]) -> Any:
        return self._engine.wrap_blocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def get_computed_blocks_for_connector(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return *self._engine.get_computed_blocks(*args, **kwargs), False

    def free(self, request: Any = None, request_id: str = "") -> None:
        self._engine.free(request_id or request.request_id)

    def pop_blocks_for_free(self, request: Any = None, request_id: str = "") -> list[Any]:
        request_id = request_id or request.request_id
        return self._engine.pop_blocks_for_free(request_id, self._release.pops_null_heads)

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        if self._enable_caching:
            self._engine.cache_blocks(request, num_computed_tokens)

    def remove_skipped_blocks(
        self,
        request_id: str,
        processed_computed_tokens: int,
        num_prompt_tokens: int | None = None,
    ) -> None:
        self._engine.remove_skipped_blocks(request_id, max(0, processed_computed_tokens))

    def estimate_cached_tokens(self, request: Any) -> int:
        return self._engine.estimate_cached_tokens(request.request_id)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self._engine.evict_blocks(list(block_ids))


class _EnginePool:
    """The engine under the names of vLLM's pool."""

    def __init__(self, engine: VllmManager) -> None:
        self._engine = engine
        self.blocks = _Blocks(engine.block)
        engine.set_facade(self)
        self.null_block = engine.block(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def get_num_free_blocks(self) -> int:
        return self._engine.num_free_blocks()

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        self._engine.free_blocks(list(ordered_blocks))

    def unpin_blocks(self, blocks: Iterable[Any], on_reuse: Callable[[Any], None]) -> None:
        self._engine.unpin_blocks(list(blocks))

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self._engine.evict_blocks(list(block_ids))


class _Blocks:
    def __init__(self, block: Callable[[int], Any]) -> None:
        self._block = block

    def __getitem__(self, block_id: int) -> Any:
        return self._block(block_id)


def _make_engine(configuration: Mapping[str, Json], release: Release) -> VllmManager:
    arguments = SimpleNamespace(**configuration["arguments"])
    groups = [
        KVCacheGroupSpec(
            group["kind"], group["block_size"], **_without(group, "kind", "block_size")
        )
        for group in configuration["groups"]
    ]
    is_flagged = any(group.is_eagle_group for group in groups)
    has_window = any(group.sliding_window for group in groups)
    interval = configuration["retention_interval"]
    max_in_flight_tokens = arguments.max_in_flight_tokens
    return VllmManager(
        KVCacheConfig(
            configuration["num_blocks"],
            groups,
            needs_kv_cache_zeroing=configuration["needs_kv_cache_zeroing"],
        ),
        max_model_len=arguments.max_model_len,
        scheduler_block_size=arguments.scheduler_block_size,
        hash_block_size=arguments.hash_block_size,
        max_in_flight_tokens=(
            arguments.max_model_len if max_in_flight_tokens is None else max_in_flight_tokens
        ),
        enable_caching=arguments.enable_caching,
        use_eagle=arguments.use_eagle or (release.drops_flagged_groups and is_flagged),
        num_prefill_lookahead=arguments.num_prefill_lookahead,
        enable_kv_cache_events=False,
        watermark=arguments.watermark,
        policy=Policy(retention_interval=None if interval == 0 and not has_window else interval),
        keep_tail_below_junction=release.keeps_block_below_junction,
        counts_null_references=release.counts_null_references,
        observe=False,
        waiting_states=["WAITING", "PREEMPTED"],
    )


def _without(values: Mapping[str, Json], *names: str) -> dict[str, Json]:
    return {key: value for key, value in values.items() if key not in names}
