"""vLLM's scheduler with its offloading connector, and a worker that answers at once.

Importing this module loads vLLM's plugins, so ``KVOXIDE`` decides which block manager is used.
"""

import random
import time
from typing import Any, Final

import torch
from kvoxide.lab.bench.sides import vllm_groups
from kvoxide.lab.verify.schedulers.configuration import connector_model_config
from kvoxide.lab.verify.schedulers.side import NoGrammar
from vllm import config as vllm_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.plugins import load_general_plugins
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.utils.math_utils import round_up
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import core as engine_core
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheTensor
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from benches.scheduler_steps.phases import PhaseError, Step
from benches.scheduler_steps.sizes import Sizes
from benches.sides import class_of_other_side

load_general_plugins()

_PAGE_BYTES: Final = 4_096
_TOKEN: Final = 7
_TOKENS: Final = range(100_000)
_ENDLESS: Final = 1 << 20


class Server:
    """The scheduler of a server, without an engine."""

    def __init__(self, sizes: Sizes) -> None:
        """Construct vLLM's scheduler. ``KVOXIDE`` decides over which classes."""
        cache = _cache(sizes)
        config = _config(sizes, cache)
        block_size, hash_size = kv_cache_utils.resolve_kv_cache_block_sizes(cache, config)
        hash_function = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        kv_cache_utils.init_none_hash(hash_function)
        # The plugin replaces this function in vLLM's module, so it must be looked up there.
        self._hasher = engine_core.get_request_block_hasher(hash_size, hash_function)
        self.scheduler: Any = Scheduler(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=NoGrammar(),
            block_size=block_size,
            hash_block_size=hash_size,
            log_stats=True,
        )
        self.output: Any = None

    def require_classes_of(self, mode: str) -> None:
        """Raise an exception if ``KVOXIDE=mode`` had no effect on one of the classes."""
        if (name := class_of_other_side(mode, self.scheduler)) is not None:
            raise PhaseError(f"it has no effect, vLLM uses {name}")

    def add(self, name: str, prompt: list[int], max_tokens: int = _ENDLESS) -> Any:
        """Add a request, which is not timed, and return it."""
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        request = Request(name, prompt, sampling, None, block_hasher=self._hasher)
        self.scheduler.add_request(request)
        return request

    def abort(self, request: Any) -> None:
        """Abort a request. The next step, which is not timed, reports it to the worker."""
        self.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        self.step()

    def steps(self, num: int) -> list[Step]:
        """Make steps and return their times."""
        return [self.step() for _ in range(num)]

    def step(self) -> Step:
        """Make a step. Its time is the time of the scheduler, without the worker."""
        start = time.thread_time_ns()
        output = self.scheduler.schedule()
        scheduled = time.thread_time_ns() - start
        result = self._work(output)
        start = time.thread_time_ns()
        self.scheduler.update_from_output(output, result)
        updated = time.thread_time_ns() - start
        self.output = output
        return Step((scheduled + updated) / 1000, dict(output.num_scheduled_tokens))

    def _work(self, output: Any) -> ModelRunnerOutput:
        names = list(output.num_scheduled_tokens)
        requests = self.scheduler.requests
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[
                [] if requests[name].is_prefill_chunk else [_TOKEN] for name in names
            ],
            kv_connector_output=_transfers(output.kv_connector_metadata),
        )

    def evict(self, request: Any) -> None:
        """Abort a request and evict its blocks from the GPU's prefix cache."""
        groups = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)
        self.abort(request)
        blocks = {block for group in groups for block in group if block}
        self.scheduler.kv_cache_manager.evict_blocks(blocks)

    def hold_all_but(self, num_blocks: int) -> Any:
        """Take free blocks of the GPU, so that only ``num_blocks`` are left. Return the others."""
        pool = self.scheduler.kv_cache_manager.block_pool
        return pool.get_new_blocks(max(0, pool.get_num_free_blocks() - num_blocks))

    def release(self, blocks: Any) -> None:
        """Return the blocks of :meth:`hold_all_but`."""
        self.scheduler.kv_cache_manager.block_pool.free_blocks(blocks)

    @property
    def is_host_full(self) -> bool:
        """Whether every chunk in CPU memory was allocated, so that a new one evicts another."""
        host = self.scheduler.connector.connector_scheduler.manager
        return bool(host._num_allocated_chunks >= host._num_chunks)


def random_prompt(name: str, tokens: int) -> list[int]:
    """Return the prompt with this name, the same on both sides."""
    return random.Random(name).choices(_TOKENS, k=tokens)


def _transfers(metadata: Any) -> KVConnectorOutput | None:
    """Return a worker's report that it has done all jobs of a step."""
    if metadata is None:
        return None
    report = OffloadingWorkerMetadata()
    for job_id in (*metadata.store_jobs, *metadata.load_jobs):
        report.mark_completed(job_id)
    loaded = {job.req_id for job in metadata.load_jobs.values()}
    return KVConnectorOutput(finished_recving=loaded or None, kv_connector_worker_meta=report)


def _cache(sizes: Sizes) -> KVCacheConfig:
    groups = vllm_groups(sizes.layout)
    page = max(group.kv_cache_spec.page_size_bytes for group in groups)
    return KVCacheConfig(
        num_blocks=sizes.gpu_blocks,
        kv_cache_tensors=[
            KVCacheTensor(
                size=page * sizes.gpu_blocks,
                layers=group.layer_names,
                layer_stride=0,
                block_stride=page,
            )
            for group in groups
        ],
        kv_cache_groups=groups,
    )


def _config(sizes: Sizes, cache: KVCacheConfig) -> Any:
    specs = [group.kv_cache_spec for group in cache.kv_cache_groups]
    scheduling = vllm_config.SchedulerConfig(
        max_num_seqs=sizes.decoding + 8,
        max_num_batched_tokens=sizes.chunk,
        max_model_len=sizes.max_model_len,
        is_encoder_decoder=False,
        async_scheduling=False,
    )
    caching = vllm_config.CacheConfig(enable_prefix_caching=True)
    config = vllm_config.VllmConfig(scheduler_config=scheduling, cache_config=caching)
    config.model_config = connector_model_config(sizes.max_model_len, torch.float16)
    caching.block_size = min(spec.block_size for spec in specs)
    caching.num_gpu_blocks = sizes.gpu_blocks
    if sizes.connector != "none":
        page = round_up(max(spec.page_size_bytes for spec in specs), _PAGE_BYTES)
        config.kv_transfer_config = vllm_config.KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            engine_id="scheduler-steps",
            kv_connector_extra_config={
                "cpu_bytes_to_use": sizes.host_blocks * page,
                "eviction_policy": sizes.connector,
            },
        )
    return config
