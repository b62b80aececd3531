"""vLLM's own scheduler with its own offloading connector, twice over: the same traffic through
vLLM's methods and through kvoxide's, and workers whose transfers take a few steps."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from kvoxide.vllm.environment import recognise_connector, settings
from kvoxide.vllm.host import connector_class
from vllm import config as vllm_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import RequestOffloadState
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_offload.base import LookupResult
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

SIZE = 16
_ATTENTION = {"num_kv_heads": 1, "head_size": 8, "dtype": torch.float16}
_MODEL = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 64,
    "ffn_dim": 64,
    "vocab_size": 1000,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "max_position_embeddings": 4096,
    "word_embed_proj_dim": 64,
}

_NOT_STATE = {
    "config",
    "manager",
    "_connector_stats",
    "_events_tracker",
    "_has_sync_loads",
    "get_external_cache_hit_sources",
    "_reset_fence_since",
    "shadow",
}

init_none_hash(sha256_cbor)


def _full(size: int = SIZE) -> Any:
    return FullAttentionSpec(block_size=size, **_ATTENTION)


def _window(tokens: int, size: int = SIZE) -> Any:
    return SlidingWindowSpec(block_size=size, sliding_window=tokens, **_ATTENTION)


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
}
TIERS = ("kvoxide's", "vLLM's", "fickle")


@dataclass(frozen=True)
class Scenario:
    """What one run has; ``tier`` is whose manager the connector asks."""

    seed: int
    layout: str
    tier: str
    over_kvoxide: bool
    is_eagle: bool
    num_blocks: int
    num_chunks: int
    interval: int | None
    extra: dict[str, Any]
    is_async: bool
    has_events: bool

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
        return cls(
            seed=seed,
            layout=layout,
            tier=rng.choice(TIERS),
            over_kvoxide=rng.random() < 0.5,
            is_eagle=not states and rng.random() < 0.3,
            num_blocks=rng.choice([60, 90, 160]),
            num_chunks=rng.choice([3, 30, 100, 300]),
            interval=rng.choice([None, 0, None if layout in ("full", "chunked") else 384]),
            extra=extra,
            is_async=rng.random() < 0.3,
            has_events=rng.random() < 0.3,
        )


class FickleManager(CPUOffloadingManager):  # type: ignore[misc]
    """Answers depend on how often it was asked, as those of tiers that promote do; ``asked`` are
    the calls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[Any] = []

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        self.asked.append(("lookup", key, req_context.req_id))
        if len(self.asked) % 23 == 0:
            return LookupResult.RETRY
        answer: LookupResult = super().lookup(key, req_context)
        return answer

    def get_load_source(self, key: Any, req_context: Any) -> CacheHitSource:
        self.asked.append(("source", key, req_context.req_id))
        sources = list(CacheHitSource)
        return sources[len(self.asked) // 3 % len(sources)]


class World:
    """One side: a scheduler, and a worker that reports what its transfers did."""

    def __init__(self, scenario: Scenario, folder: Path, is_ours: bool) -> None:
        self.scenario = scenario
        self.config = _config(scenario, folder)
        groups = [
            KVCacheGroupSpec([f"layer{i}"], spec)
            for i, spec in enumerate(LAYOUTS[scenario.layout]())
        ]
        groups[0].is_eagle_group = scenario.is_eagle
        cache = _cache(groups, scenario)
        size, self._hash_size = resolve_kv_cache_block_sizes(cache, self.config)
        self._hasher = get_request_block_hasher(self._hash_size, sha256_cbor)
        with settings.using(_settings(scenario, is_ours)):
            self.scheduler = (AsyncScheduler if scenario.is_async else Scheduler)(
                vllm_config=self.config,
                kv_cache_config=cache,
                structured_output_manager=StructuredOutputManager(self.config),
                block_size=size,
                hash_block_size=self._hash_size,
                log_stats=True,
            )
        self.connector = self.scheduler.connector.connector_scheduler
        if is_ours and type(self.connector) is not connector_class():
            self.connector.__class__ = connector_class()
            self.connector._has_sync_loads = recognise_connector().release.has_sync_loads
        if scenario.tier == "fickle":
            policy = scenario.extra["eviction_policy"]
            self.connector.manager = FickleManager(scenario.num_chunks, policy)
        self._told: list[Any] = []
        self.scheduler.kv_event_publisher = SimpleNamespace(
            publish=lambda batch: self._told.append(batch.events), shutdown=lambda: None
        )
        self._not_updated: list[Any] = []
        self._sources: list[Any] = []
        self._note_sources()
        self._due: dict[int, tuple[int, str | None]] = {}
        self._step = 0

    def _note_sources(self) -> None:
        ask = self.connector.get_external_cache_hit_sources

        def asking(*args: Any) -> Any:
            self._sources.append(ask(*args))
            return self._sources[-1]

        self.connector.get_external_cache_hit_sources = asking

    def add(self, name: str, tokens: list[int], max_tokens: int, params: Any) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        request = Request(name, tokens, sampling, None, block_hasher=self._hasher)
        request.kv_transfer_params = params
        self.scheduler.add_request(request)

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def reset(self) -> bool:
        return bool(self.scheduler.reset_prefix_cache(reset_connector=True))

    def step(self) -> Any:
        self._step += 1
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        requests = self.scheduler.requests
        sampled = [[] if requests[n].is_prefill_chunk else [700 + self._step % 5] for n in names]
        metadata = output.kv_connector_metadata
        done = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=self._report(metadata),
        )
        told = _visible(output), _jobs(metadata)
        self._not_updated.append((output, done))
        outputs: Any = {}
        # With async scheduling, a step is scheduled before the one before it has ended.
        if len(self._not_updated) > self.scenario.is_async or not names:
            outputs = self.scheduler.update_from_output(*self._not_updated.pop(0))
        events, self._told = self._told, []
        return *told, self._answers(outputs), events

    def _report(self, metadata: Any) -> KVConnectorOutput:
        for job_id in metadata.store_jobs:
            self._due[job_id] = self._due_step(job_id), None
        for job_id, job in metadata.load_jobs.items():
            is_sync = getattr(job, "sync", False)
            step = self._step if is_sync else self._due_step(job_id)
            self._due[job_id] = step, None if is_sync else job.req_id
        ended = {
            job_id
            for job_id, (step, _) in self._due.items()
            if step <= self._step or job_id in (metadata.jobs_to_flush or ())
        }
        loaded = {self._due[job_id][1] for job_id in ended} - {None}
        report = OffloadingWorkerMetadata()
        report.completed_jobs.update(dict.fromkeys(sorted(ended), 1))
        for job_id in ended:
            del self._due[job_id]
        return KVConnectorOutput(finished_recving=loaded or None, kv_connector_worker_meta=report)

    def _due_step(self, job_id: int) -> int:
        return self._step + random.Random(self.scenario.seed * 7919 + job_id).choice([0, 1, 2, 6])

    @staticmethod
    def _answers(outputs: Any) -> Any:
        return [
            (out.request_id, out.new_token_ids, out.finish_reason, out.prefill_stats)
            for each in outputs.values()
            for out in each.outputs
        ]

    def state(self) -> dict[str, Any]:
        """Everything that the connector knows."""
        inside = {k: v for k, v in vars(self.connector).items() if k not in _NOT_STATE}
        inside["_req_status"] = {
            req_id: _request_state(state) for req_id, state in self.connector._req_status.items()
        }
        inside["sources"] = [list(sources.items()) for sources in self._sources]
        inside["asked"] = getattr(self.connector.manager, "asked", None)
        return inside


def _request_state(state: Any) -> dict[str, Any]:
    fields = {name: getattr(state, name) for name in RequestOffloadState.__slots__}
    for name in ("config", "req", "deferred_lookup_start_time"):
        del fields[name]
    fields["positions"] = dict(fields.pop("req_context")._offload_key_positions)
    return fields


def _visible(output: Any) -> Any:
    new = [(r.req_id, r.block_ids, r.num_computed_tokens) for r in output.scheduled_new_reqs]
    cached = output.scheduled_cached_reqs
    return (
        new,
        (cached.req_ids, cached.new_block_ids, cached.num_computed_tokens),
        dict(output.num_scheduled_tokens),
        sorted(output.finished_req_ids),
        sorted(output.preempted_req_ids or ()),
    )


def _jobs(metadata: Any) -> Any:
    told = [
        [
            (
                job_id,
                job.req_id,
                *(_spec(spec) for spec in (job.src_spec, job.dst_spec)),
                getattr(job, "sync", False),
            )
            for job_id, job in jobs.items()
        ]
        for jobs in (metadata.load_jobs, metadata.store_jobs)
    ]
    return told, sorted(metadata.jobs_to_flush or ())


def _spec(spec: Any) -> Any:
    fields = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in vars(spec).items()}
    return type(spec).__name__, str(spec.block_ids.dtype), fields


def _settings(scenario: Scenario, is_ours: bool) -> settings.Settings:
    if not scenario.over_kvoxide and scenario.tier != "kvoxide's":
        return settings.Settings(mode="off")
    is_native = is_ours and scenario.tier == "kvoxide's"
    return settings.Settings(mode="auto", host_mode="require" if is_native else "off")


def _cache(groups: list[Any], scenario: Scenario) -> Any:
    page = max(group.kv_cache_spec.page_size_bytes for group in groups)
    tensors = [
        KVCacheTensor(
            size=page * scenario.num_blocks, layers=[f"layer{i}"], layer_stride=0, block_stride=page
        )
        for i in range(len(groups))
    ]
    return KVCacheConfig(
        num_blocks=scenario.num_blocks,
        kv_cache_tensors=tensors,
        kv_cache_groups=groups,
        prefix_cache_retention_interval=scenario.interval,
    )


def _config(scenario: Scenario, folder: Path) -> Any:
    (folder / "config.json").write_text(json.dumps(_MODEL))
    model = vllm_config.ModelConfig(
        model=str(folder),
        tokenizer=str(folder),
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=2048,
    )
    scheduling = vllm_config.SchedulerConfig(
        max_num_seqs=6,
        max_num_batched_tokens=96,
        max_model_len=2048,
        is_encoder_decoder=False,
        async_scheduling=False,
    )
    scheduling.async_scheduling = scenario.is_async
    cache = vllm_config.CacheConfig(block_size=SIZE, enable_prefix_caching=True)
    config = vllm_config.VllmConfig(
        model_config=model, scheduler_config=scheduling, cache_config=cache
    )
    specs = LAYOUTS[scenario.layout]()
    cache.block_size = min(spec.block_size for spec in specs)
    if "states" in scenario.layout:
        cache.mamba_cache_mode = "align"
        cache.mamba_block_size = specs[1].block_size
    cache.num_gpu_blocks = scenario.num_blocks
    cache.prefix_cache_retention_interval = scenario.interval
    chunk = max(spec.page_size_bytes for spec in specs) * scenario.extra.get("blocks_per_chunk", 1)
    memory = scenario.num_chunks * (-(-chunk // 4096) * 4096)
    if scenario.has_events:
        config.kv_events_config = vllm_config.KVEventsConfig(
            enable_kv_cache_events=True, publisher="null"
        )
    config.kv_transfer_config = vllm_config.KVTransferConfig(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        engine_id="twin",
        kv_connector_extra_config={"cpu_bytes_to_use": memory, **scenario.extra},
    )
    return config


def _step_or_error(side: World) -> Any:
    try:
        return side.step()
    except (AssertionError, KeyError, ValueError) as error:
        return repr(error)


class Traffic:
    """The same random requests, ends, resets and steps for several sides."""

    def __init__(self, scenario: Scenario, *sides: World) -> None:
        self._rng = random.Random(scenario.seed * 31 + 7)
        self._sides = sides
        self._num_requests = 0
        self._trunks = [[self._rng.randrange(600) for _ in range(700)] for _ in range(3)]
        self.counts: dict[str, int] = {}

    def step(self) -> bool:
        """Something happens, then a step of each side. Whether they can go on: vLLM's own connector
        may raise. What differs is an ``AssertionError``."""
        rng = self._rng
        running = sorted(self._sides[0].scheduler.requests)
        if len(running) < 8 and rng.random() < 0.5:
            self._add()
        if running and rng.random() < 0.05:
            name = rng.choice(running)
            for side in self._sides:
                side.abort(name)
        if rng.random() < 0.02:
            self._same([side.reset() for side in self._sides], "reset")
        told = [_step_or_error(side) for side in self._sides]
        self._same(told, "step")
        if isinstance(told[0], str):
            return False
        self._same([side.state() for side in self._sides], "state")
        loads, stores = told[0][1][0]
        for what, number in (
            ("loads", len(loads)),
            ("stores", len(stores)),
            ("flushes", len(told[0][1][1])),
            ("preemptions", len(told[0][0][4])),
            ("events", sum(len(events) for events in told[0][3])),
            ("steps", 1),
        ):
            self.counts[what] = self.counts.get(what, 0) + number
        return True

    def _add(self) -> None:
        rng = self._rng
        trunk = rng.choice(self._trunks)
        tokens = trunk[: rng.randrange(1, 500)] + [
            rng.randrange(600) for _ in range(rng.choice([0, 0, 5, 40]))
        ]
        params = rng.choice([None, None, {"max_load_tokens": 64}, {"max_offload_tokens": 100}])
        self._num_requests += 1
        max_tokens = rng.choice([1, 3, 60])
        for side in self._sides:
            side.add(f"r{self._num_requests}", list(tokens), max_tokens, params)

    @staticmethod
    def _same(answers: list[Any], what: str) -> None:
        first, second = answers
        if first == second:
            return
        if isinstance(first, dict):
            for name in first:
                assert first[name] == second.get(name), f"{what}: {name}"
        assert first == second, what
