"""One side: vLLM's scheduler with its offloading connector, and simulated workers."""

from collections import Counter, deque
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kvoxide.lab.verify.schedulers.side import NoGrammar
from kvoxide.vllm.adapter.manager import KVCacheManager as KvoxideManager
from kvoxide.vllm.environment import settings
from kvoxide.vllm.offload import connector_class, native_class
from kvoxide.vllm.plugin.hashing import native_hasher
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1 import offloading_connector
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_offload.base import LookupResult, OffloadPolicy, RequestOffloadingContext
from vllm.v1.kv_offload.cpu import spec as spec_module
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from .memory import Prefixes, Text
from .observed import HOOKS, StepReport, plain_metadata, plain_outputs, plain_stats, plain_step
from .scenario import Scenario
from .worker import Batch, Rank, metadata_of_ranks

init_none_hash(sha256_cbor)


class VllmsConnector(OffloadingConnectorScheduler):  # type: ignore[misc]
    """vLLM's own connector. kvoxide's does not inherit errors that are planted here."""


class VllmsTier(CPUOffloadingManager):  # type: ignore[misc]
    """vLLM's own tier, as a separate class for the same reason."""


class FickleTier(CPUOffloadingManager):  # type: ignore[misc]
    """A tier whose answers depend on how often it was asked, like tiers that promote. Some requests
    are stored as a whole. ``asked`` has the calls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[Any] = []

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        self.asked.append(("lookup", key, req_context.req_id))
        if len(self.asked) % 23 == 0:
            return LookupResult.RETRY
        answer: LookupResult = super().lookup(key, req_context)
        return answer

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        super().on_new_request(req_context)
        is_whole = int(req_context.req_id[1:]) % 3 == 0
        return RequestOffloadingContext(
            OffloadPolicy.REQUEST_LEVEL if is_whole else OffloadPolicy.CHUNK_LEVEL
        )

    def get_load_source(self, key: Any, req_context: Any) -> CacheHitSource:
        self.asked.append(("source", key, req_context.req_id))
        sources = list(CacheHitSource)
        return sources[len(self.asked) // 3 % len(sources)]


def _tier_class(tier: str, is_ours: bool) -> type:
    if tier == "fickle":
        return FickleTier
    return native_class() if is_ours and tier == "kvoxide's" else VllmsTier


class World:
    """One side. With ``is_ours``, the connector and the hashes are kvoxide's, and in half of the
    scenarios the GPU's manager too."""

    def __init__(self, scenario: Scenario, prefixes: Prefixes, is_ours: bool) -> None:
        self.scenario = scenario
        self.counts: Counter[str] = Counter()
        self._config, cache = scenario.config(), scenario.cache()
        size, hash_size = resolve_kv_cache_block_sizes(cache, self._config)
        self._hasher = get_request_block_hasher(hash_size, sha256_cbor)
        if is_ours:
            self._hasher = native_hasher(kv_cache_utils, self._hasher, hash_size, sha256_cbor)
        with ExitStack() as stack:
            self._choose_classes(stack, is_ours)
            self.scheduler = (AsyncScheduler if scenario.is_async else Scheduler)(
                vllm_config=self._config,
                kv_cache_config=cache,
                structured_output_manager=NoGrammar(),
                block_size=size,
                hash_block_size=hash_size,
                log_stats=True,
            )
        self._block_size = size
        # Older releases of vLLM do not read it.
        self.scheduler.defer_async_loads = scenario.defers_loads
        self._published: list[Any] = []
        self.scheduler.kv_event_publisher = SimpleNamespace(
            publish=lambda batch: self._published.extend(batch.events), shutdown=lambda: None
        )
        self._prefixes = prefixes
        self._texts: dict[str, Text] = {}
        self._batch = Batch(prefixes.text)
        self.ranks = [Rank(scenario, i, self._config, cache) for i in range(scenario.ranks)]
        self._aggregator = KVOutputAggregator(scenario.ranks)
        self._in_flight: deque[tuple[Any, list[bool]]] = deque()
        self._step = 0
        connector = self.scheduler.connector
        children = getattr(connector, "_connectors", [connector])
        self.connectors = [child.connector_scheduler for child in children]
        self._answers: list[Any] = []
        for child in range(len(children)):
            self._watch(child)

    def _choose_classes(self, stack: ExitStack, is_ours: bool) -> None:
        """Use the classes of the scenario, whatever plugin is registered."""
        put = mock.patch.object
        stack.enter_context(settings.using(settings.Settings(mode="off")))
        connector = connector_class() if is_ours else VllmsConnector
        tier = _tier_class(self.scenario.tier, is_ours)
        stack.enter_context(put(offloading_connector, "OffloadingConnectorScheduler", connector))
        stack.enter_context(put(spec_module, "CPUOffloadingManager", tier))
        if self.scenario.over_kvoxide and is_ours:
            stack.enter_context(put(scheduler_module, "KVCacheManager", KvoxideManager))

    def _watch(self, child: int) -> None:
        """Count the calls of a connector's hooks, and note their results."""
        connector = self.connectors[child]
        for name in HOOKS:
            setattr(connector, name, partial(self._asking, name, child, getattr(connector, name)))

    def _asking(self, name: str, child: int, hook: Any, *args: Any, **kwargs: Any) -> Any:
        self.counts["hooks"] += 1
        answer = hook(*args, **kwargs)
        if name == "take_events":
            answer = list(answer)
        if name == "update_state_after_alloc":
            self._expect(child, *args)
        if name == "get_external_cache_hit_sources":
            self._answers.append((name, list(answer.items())))
        elif name not in ("build_connector_meta", "get_stats", "take_events"):
            self._answers.append((name, answer))
        return answer

    def _expect(self, child: int, request: Any, blocks: Any, num_tokens: int) -> None:
        """Report to the workers which content a planned load must bring."""
        connector = self.connectors[child]
        if not num_tokens:
            return
        state = connector._req_status[request.request_id]
        num_tokens += state.num_locally_computed_tokens
        (job_id,) = state.transfer_jobs
        self.counts["loads within a step"] += getattr(
            connector._jobs[job_id], "is_sync_load", False
        )
        self.counts["loads that end inside a block"] += num_tokens % self._block_size > 0
        for rank in self.ranks:
            wanted = self._texts[request.request_id], num_tokens, blocks.get_block_ids()
            rank.workers[child].wanted[job_id] = wanted

    def text_of(self, name: str) -> Text:
        """Return the text of a request, which may have ended."""
        return self._texts[name]

    def add(self, *, name: str, tokens: list[int], params: Any, **sampling: Any) -> None:
        request = Request(
            name,
            list(tokens),
            SamplingParams(ignore_eos=True, **sampling),
            None,
            block_hasher=self._hasher,
        )
        request.kv_transfer_params = params
        self._texts[name] = self._prefixes.text(tokens)
        self.scheduler.add_request(request)

    def abort(self, *, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def reset(self, *, with_running: bool, with_host: bool) -> bool:
        """Reset the caches. Return False also if vLLM refuses after it has preempted all running
        requests."""
        try:
            return bool(
                self.scheduler.reset_prefix_cache(
                    reset_running_requests=with_running, reset_connector=with_host
                )
            )
        except RuntimeError:
            return False

    def step(self) -> StepReport:
        """Make a step, and return its visible state."""
        self._step += 1
        has_requests = self.scheduler.has_requests()
        output = self.scheduler.schedule()
        names = output.num_scheduled_tokens
        requests = self.scheduler.requests
        self._in_flight.append((output, [requests[name].is_prefill_chunk for name in names]))
        self.counts["steps that defer loads"] += bool(getattr(self.scheduler, "deferred_loads", 0))
        report = StepReport([has_requests, *plain_step(output)])
        # With async scheduling, a step is scheduled before the previous one has ended.
        if len(self._in_flight) > self.scenario.is_async or not names:
            self._run(*self._in_flight.popleft(), report)
        report.answers, self._answers = self._answers, []
        return report

    def _run(self, output: Any, is_chunk: list[bool], report: StepReport) -> None:
        report.jobs = plain_metadata(output.kv_connector_metadata)
        forward, tokens = self._batch.take(output)
        metadata = metadata_of_ranks(output, len(self.ranks))
        reports = [
            rank.run(output, own, self._step, forward)
            for rank, own in zip(self.ranks, metadata, strict=True)
        ]
        names = list(output.num_scheduled_tokens)
        done = [
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: i for i, name in enumerate(names)},
                sampled_token_ids=[
                    [] if chunk else [token] for chunk, token in zip(is_chunk, tokens, strict=True)
                ],
                kv_connector_output=report,
            )
            for report in reports
        ]
        if len(done) > 1:
            done = [self._aggregator.aggregate(done)]
        outputs = self.scheduler.update_from_output(output, done[0])
        report.outputs, report.stats = plain_outputs(outputs), plain_stats(outputs)
        report.events, self._published = self._published, []


class ServersWorld(World):
    """A side whose classes the plugin chooses, with ``wanted`` or by default with the
    environment."""

    def __init__(
        self, scenario: Scenario, prefixes: Prefixes, wanted: settings.Settings | None = None
    ) -> None:
        self._wanted = wanted
        super().__init__(scenario, prefixes, is_ours=True)

    def _choose_classes(self, stack: ExitStack, is_ours: bool) -> None:
        if self._wanted is not None:
            stack.enter_context(settings.using(self._wanted))
