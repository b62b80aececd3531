"""The configuration of one run: a model's groups, the server's settings, and the connector's."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from kvoxide.lab.verify.schedulers.configuration import connector_model_config
from kvoxide.vllm.environment.releases import installed_version
from vllm import config as vllm_config
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SlidingWindowSpec,
)

from tests.testing.vllm_releases import NEWEST

SIZE = 16
_ATTENTION = {"num_kv_heads": 1, "head_size": 8, "dtype": torch.float16}
_MODEL = connector_model_config(max_model_len=2048, dtype=torch.float16)


def _full(size: int = SIZE) -> Any:
    return FullAttentionSpec(block_size=size, **_ATTENTION)


def _window(tokens: int, size: int = SIZE, **more: Any) -> Any:
    return SlidingWindowSpec(block_size=size, sliding_window=tokens, **_ATTENTION, **more)


def _states(size: int) -> Any:
    return MambaSpec(
        block_size=size, shapes=((8,),), dtypes=(torch.float16,), mamba_cache_mode="align"
    )


def _local() -> Any:
    return ChunkedLocalAttentionSpec(block_size=SIZE, attention_chunk_size=64, **_ATTENTION)


LAYOUTS = {
    "full": lambda: [_full()],
    "windows": lambda: [_full(), _window(40), _window(100)],
    "window alone": lambda: [_window(64)],
    "several sizes": lambda: [_full(32), _window(40), _window(24, 8)],
    "large blocks": lambda: [_full(64), _window(16, 8)],
    "chunked": lambda: [_full(), _local()],
    "states": lambda: [_full(), _states(SIZE)],
    "states inside blocks": lambda: [_full(2 * SIZE), _states(2 * SIZE)],
    "MLA": lambda: [MLAAttentionSpec(block_size=SIZE, **_ATTENTION)],
    "R-SWA": lambda: [RSWASpec(block_size=SIZE, rswa_window=48, **_ATTENTION)],
    "two sizes": lambda: [_full(), _full(2 * SIZE)],
    "lagging window": lambda: [_full(), _window(40, extra_retained_tokens=20)],
    "context parallel": lambda: [_full(8)],
    "context parallel windows": lambda: [_full(8), _window(40, dcp_sharded=False)],
}
TIERS = ("kvoxide's", "vLLM's", "fickle")


@dataclass(frozen=True)
class Scenario:
    """The configuration of a run. ``tier`` chooses the manager that the connector uses.
    ``children`` is how many connectors are under a ``MultiConnector``, or 1 without. ``ranks`` is
    the number of workers."""

    seed: int
    layout: str
    tier: str
    over_kvoxide: bool
    eagle_group: int | None
    num_blocks: int
    num_chunks: int
    interval: int | None
    extra: dict[str, Any]
    is_async: bool
    has_events: bool
    has_gpu_hits: bool
    ranks: int
    children: int
    defers_loads: bool
    has_finer_hashes: bool
    reuses_ids: bool
    resets: float
    tokens_per_step: int

    @classmethod
    def draw(cls, seed: int) -> "Scenario":
        rng = random.Random(seed)
        layout = list(LAYOUTS)[seed % len(LAYOUTS)]
        states = "states" in layout
        extra: dict[str, Any] = {"eviction_policy": rng.choice(["lru", "arc"])}
        if not states and rng.random() < 0.25:
            extra["blocks_per_chunk"] = rng.choice([2, 3])
        if rng.random() < 0.4:
            extra["offload_prompt_only"] = False
        if rng.random() < 0.3:
            extra["sync_load_budget_bytes"] = rng.choice([1 << 12, 1 << 20])
        if rng.random() < 0.15:
            extra["store_threshold"] = 2
            extra["max_tracker_size"] = rng.choice([50, 64_000])
        is_async = rng.random() < 0.3
        has_finer_hashes = layout == "states inside blocks" and rng.random() < 0.7
        drafting = range(len(LAYOUTS[layout]()))
        if states or layout == "chunked":
            # Other groups cannot be a draft model's.
            drafting = range(has_finer_hashes or not states)
        has_events = rng.random() < 0.3
        if has_events and rng.random() < 0.3:
            extra["self_describing_kv_events"] = True
        return cls(
            seed=seed,
            layout=layout,
            tier=rng.choice(TIERS),
            over_kvoxide=rng.random() < 0.5,
            eagle_group=rng.choice(drafting) if drafting and rng.random() < 0.3 else None,
            num_blocks=rng.choice([60, 90, 160]),
            num_chunks=rng.choice([3, 30, 100, 300]),
            interval=rng.choice([None, 0, 384 if states or "window" in layout else None]),
            extra=extra,
            is_async=is_async,
            has_events=has_events,
            has_gpu_hits=states or rng.random() < 0.94,
            ranks=2 if "parallel" in layout else rng.choice([1, 1, 1, 2]),
            children=2 if rng.random() < 0.15 else 1,
            defers_loads=is_async and rng.random() < 0.3,
            has_finer_hashes=has_finer_hashes,
            # It is rare, because it mostly ends in an exception of vLLM's.
            reuses_ids=rng.random() < 0.04,
            resets=rng.choice([0.0, 0.015]),
            tokens_per_step=rng.choice([96, 256]),
        )

    def words(self) -> list[str]:
        """Words that describe this scenario."""
        said = {
            "EAGLE": self.eagle_group is not None,
            "over kvoxide's GPU manager": self.over_kvoxide,
            "asynchronous": self.is_async,
            "events": self.has_events,
            "two ranks": self.ranks > 1,
            "MultiConnector": self.children > 1,
            "deferred loads": self.defers_loads,
            "hashes inside blocks": self.has_finer_hashes,
            "ids used again": self.reuses_ids,
            "resets": self.resets > 0,
            "retention interval": self.interval is not None,
            "loads within a step": "sync_load_budget_bytes" in self.extra,
            "outputs are stored": "offload_prompt_only" in self.extra,
            "chunks of several blocks": "blocks_per_chunk" in self.extra,
            "no prefix caching": not self.has_gpu_hits,
            "events that say all": "self_describing_kv_events" in self.extra,
            "store threshold": "store_threshold" in self.extra,
        }
        kinds = [f"layout: {self.layout}", f"tier: {self.tier}", self.extra["eviction_policy"]]
        return kinds + [word for word, is_it in said.items() if is_it]

    @property
    def has_windows(self) -> bool:
        """Whether a request loses blocks while it runs. The connector must note this."""
        windows = (SlidingWindowSpec, ChunkedLocalAttentionSpec)
        return any(isinstance(spec, windows) for spec in LAYOUTS[self.layout]())

    @property
    def may_load_wrong_bytes(self) -> bool:
        """Whether vLLM may load wrong bytes, for one of these reasons:

        - After a reset, it stores blocks that left their window and belong to other requests by
          then.
        - It may store only some blocks of a chunk, but later load all of them.
        - It may copy a block of a hit before the block is computed.
        - A request may get the outputs of an earlier request with the same id.
        - In older releases, one of two connectors may load into a block from which the other still
          stores.
        """
        return (
            (self.has_windows and (self.resets > 0 or "blocks_per_chunk" in self.extra))
            or (self.has_finer_hashes and self.eagle_group is not None)
            or (self.reuses_ids and self.is_async)
            or (self.children > 1 and installed_version() != NEWEST)
        )

    @property
    def dcp(self) -> int:
        """How many ranks share the tokens of a block."""
        return 2 if "parallel" in self.layout else 1

    def groups(self) -> list[Any]:
        groups = [
            KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(LAYOUTS[self.layout]())
        ]
        if self.eagle_group is not None:
            groups[self.eagle_group].is_eagle_group = True
        return groups

    def cache(self) -> Any:
        groups = self.groups()
        page = max(group.kv_cache_spec.page_size_bytes for group in groups)
        tensors = [
            KVCacheTensor(
                size=page * self.num_blocks, layers=[f"layer{i}"], layer_stride=0, block_stride=page
            )
            for i in range(len(groups))
        ]
        return KVCacheConfig(
            num_blocks=self.num_blocks,
            kv_cache_tensors=tensors,
            kv_cache_groups=groups,
            prefix_cache_retention_interval=self.interval,
        )

    def config(self) -> Any:
        """Return vLLM's configuration."""
        scheduling = vllm_config.SchedulerConfig(
            max_num_seqs=6,
            max_num_batched_tokens=self.tokens_per_step,
            max_model_len=2048,
            is_encoder_decoder=False,
            async_scheduling=False,
        )
        cache = vllm_config.CacheConfig(block_size=SIZE, enable_prefix_caching=self.has_gpu_hits)
        config = vllm_config.VllmConfig(scheduler_config=scheduling, cache_config=cache)
        # vLLM turns it off on a CPU.
        scheduling.async_scheduling = self.is_async
        config.model_config = _MODEL
        config.parallel_config.world_size = self.ranks
        config.parallel_config.decode_context_parallel_size = self.dcp
        self._fit_cache(cache)
        if self.has_events:
            config.kv_events_config = vllm_config.KVEventsConfig(
                enable_kv_cache_events=True, publisher="null"
            )
        config.kv_transfer_config = self._transfers()
        return config

    def _fit_cache(self, cache: Any) -> None:
        specs = LAYOUTS[self.layout]()
        cache.block_size = min(spec.block_size for spec in specs)
        if "states" in self.layout:
            cache.mamba_cache_mode = "align"
            cache.mamba_block_size = specs[1].block_size
        if self.has_finer_hashes:
            cache.prefix_match_unit = SIZE
        cache.num_gpu_blocks = self.num_blocks
        cache.prefix_cache_retention_interval = self.interval

    def _transfers(self) -> Any:
        pages = [spec.page_size_bytes for spec in LAYOUTS[self.layout]()]
        chunk = max(pages) * self.extra.get("blocks_per_chunk", 1) * self.ranks
        memory = self.num_chunks * (-(-chunk // 4096) * 4096)
        children: list[dict[str, Any]] = [
            {
                "kv_connector": "OffloadingConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"cpu_bytes_to_use": memory // part, **self.extra},
            }
            for part in range(1, self.children + 1)
        ]
        child = children[0]
        if self.children > 1:
            child = {
                "kv_connector": "MultiConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"connectors": children},
            }
        return vllm_config.KVTransferConfig(**child, engine_id="twin")
