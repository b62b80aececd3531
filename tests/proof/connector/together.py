"""A server whose GPU and CPU memory decide together, with the traffic of the comparison. vLLM has
no such policy, so the content of every block that a request reads is checked."""

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

from kvoxide.vllm.adapter.manager import KVCacheManager as KvoxideManager
from kvoxide.vllm.environment import settings
from kvoxide.vllm.environment.releases import installed_version
from kvoxide.vllm.offload import NO_REQUEST, connector_class, native_class
from vllm.distributed.kv_transfer.kv_connector.v1 import offloading_connector
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.kv_offload.cpu import spec as spec_module

from tests.testing.vllm_releases import NEWEST

from .memory import Prefixes
from .scenario import LAYOUTS, Scenario
from .traffic import Traffic
from .world import World

_UNSUPPORTED = ("blocks_per_chunk", "sync_load_budget_bytes", "self_describing_kv_events")
_STEPS_TO_FINISH = 600
_LAYOUTS = [name for name in LAYOUTS if "parallel" not in name]


def draw(seed: int) -> Scenario:
    """Draw a configuration in which both memories can decide together."""
    rng = random.Random(seed)
    scenario = Scenario.draw(seed)
    while scenario.layout not in _LAYOUTS or scenario.has_finer_hashes or scenario.reuses_ids:
        seed += 10_007
        scenario = Scenario.draw(seed)
    return replace(
        scenario,
        tier="kvoxide's",
        over_kvoxide=True,
        children=1,
        has_gpu_hits=True,
        defers_loads=False,
        num_blocks=rng.choice([60, 60, 90, 160]),
        num_chunks=rng.choice([3, 30, 100, 300]),
        resets=rng.choice([0.0, 0.01]),
        extra={key: scenario.extra[key] for key in scenario.extra if key not in _UNSUPPORTED},
    )


def _has_holes(table: Iterable[Any]) -> bool:
    """Return whether an empty block is before one with a hash."""
    hashes = [block.block_hash for block in table if not block.is_null]
    return any(first is None and after for first, after in pairwise(hashes))


class TogetherWorld(World):
    """A server with kvoxide's manager, connector and tier, which decide together."""

    def __init__(self, scenario: Scenario, wanted: settings.Settings) -> None:
        self._wanted = wanted
        super().__init__(scenario, Prefixes(), is_ours=True)
        (self.connector,) = self.connectors
        self.connector.decide_with(self.scheduler.kv_cache_manager)

    def _choose_classes(self, stack: ExitStack, is_ours: bool) -> None:
        put = mock.patch.object
        stack.enter_context(settings.using(self._wanted))
        stack.enter_context(
            put(offloading_connector, "OffloadingConnectorScheduler", connector_class())
        )
        stack.enter_context(put(spec_module, "CPUOffloadingManager", native_class()))
        stack.enter_context(put(scheduler_module, "KVCacheManager", KvoxideManager))

    def reset(self, *, with_running: bool, with_host: bool) -> bool:
        """Reset the caches. Running requests are preempted with vLLM's newest release alone: the
        connector of vLLM 0.32.0 raises an error if one of them loads in the next step."""
        with_running &= installed_version() == NEWEST
        return super().reset(with_running=with_running, with_host=with_host)

    def _expect(self, child: int, request: Any, blocks: Any, num_tokens: int) -> None:
        super()._expect(child, request, blocks, num_tokens)
        if not num_tokens:
            return
        self.counts["loads"] += 1
        state = self.connector._req_status[request.request_id]
        (job_id,) = state.transfer_jobs
        num_loaded = len(self.connector._jobs[job_id].keys)
        self.counts["loaded blocks"] += num_loaded
        self.counts["tokens of loads"] += num_tokens
        start, size = state.num_locally_computed_tokens, self._block_size
        num_blocks = sum(
            -(-(start + num_tokens) // config.tokens_per_block) - start // config.tokens_per_block
            for config in self.connector.config.kv_group_configs
            if config.sliding_window_size_in_chunks is None
        )
        self.counts["loads that attach blocks"] += num_loaded < num_blocks and size > 0
        has_holes = any(
            config.sliding_window_size_in_chunks is not None
            and _has_holes(blocks.blocks[config.group_idx])
            for config in self.connector.config.kv_group_configs
        )
        self.counts["loads that fill holes"] += has_holes

    def check(self) -> None:
        """Check that the connector's jobs and the tier belong together."""
        connector, tier = self.connector, self.connector.manager.tier
        jobs = connector._jobs
        pending = sum(len(job.keys) for job in jobs.values() if job.is_store)
        assert tier.num_pending_chunks == pending
        watched = {
            job for of_block in connector._block_id_to_pending_jobs.values() for job in of_block
        }
        assert watched <= jobs.keys()
        assert all(job.req_id == NO_REQUEST for job in jobs.values() if job.is_store)

    def finish(self) -> None:
        """Run until nothing is left to do."""
        for at in range(_STEPS_TO_FINISH):
            if not self.scheduler.has_requests() and not self._in_flight:
                break
            # A prompt can be too long for the pool, and then all requests wait.
            if at == _STEPS_TO_FINISH // 2:
                for name in list(self.scheduler.requests):
                    self.abort(name=name)
            self.step()
        assert not self.connector._jobs
        assert not self.connector._block_id_to_pending_jobs
        assert not self.connector._req_status
        tier = self.connector.manager.tier
        assert tier.num_pending_chunks == tier.num_loading_keys == 0
        assert tier.num_evictable_chunks + tier.num_free_chunks == tier.num_chunks


def run(seed: int, num_steps: int) -> Counter[str]:
    """Make steps with random traffic. Return what happened."""
    scenario = draw(seed)
    retention = random.Random(seed).choice(settings.RETENTIONS)
    if retention == "adaptive":
        scenario = replace(scenario, interval=None)
    wanted = settings.Settings(mode="off", retention=retention, check_every=1)
    world, traffic = TogetherWorld(scenario, wanted), Traffic(scenario)
    for _ in range(num_steps):
        for happens in traffic.draw(world):
            happens(world)
        report = world.step()
        world.counts.update(report.counts())
        world.check()
    world.finish()
    world.counts["checked blocks"] = sum(rank.memory.num_checked for rank in world.ranks)
    return world.counts
