"""One of the two schedulers: vLLM's own, over one manager class or the other."""

import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from kvoxide.lab.verify.managers.driver import NewRequest
from kvoxide.lab.verify.managers.sides.vllm_config import make_config, make_hasher, make_request
from kvoxide.lab.verify.reference import require_vllms_manager
from kvoxide.lab.verify.schedulers.configuration import make_vllm_config
from kvoxide.lab.verify.schedulers.connector import RandomConnector
from kvoxide.lab.verify.schedulers.plan import Plan
from kvoxide.vllm.adapter.manager import KVCacheManager as KvoxideManager

logging.getLogger("vllm").setLevel(logging.ERROR)

MANAGERS: tuple[Any, Any] = (KVCacheManager, KvoxideManager)


class NoGrammar:
    """Replaces vLLM's structured output, which no request uses."""

    def accept_tokens(self, *_: object) -> bool:
        return True

    def should_advance(self, *_: object) -> bool:
        return False

    def validate_tokens(self, _: object, tokens: list[int]) -> list[int]:
        return tokens


class Side:
    def __init__(self, plan: Plan, manager_class: Any) -> None:
        self._hasher: Callable[[Request], list[bytes]] = make_hasher(plan.scenario)
        self.connector: RandomConnector | None = None
        self.published: list[Any] = []
        self.scheduler = self._make_scheduler(plan, manager_class)
        if manager_class is KVCacheManager:
            require_vllms_manager(self.scheduler.kv_cache_manager)
        self.scheduler.kv_event_publisher = self

    def _make_scheduler(self, plan: Plan, manager_class: Any) -> Any:
        vllm_config, kv_cache_config = make_vllm_config(plan), make_config(plan.scenario)
        if plan.connector:
            self.connector = RandomConnector(plan, vllm_config, kv_cache_config)
        scheduler_class = AsyncScheduler if plan.is_async else Scheduler
        patch = mock.patch.object
        with (
            patch(scheduler_module, "KVCacheManager", manager_class),
            patch(scheduler_module, "KVConnectorFactory", self),
            patch(scheduler_module, "EventPublisherFactory", mock.Mock()),
        ):
            return scheduler_class(
                vllm_config=vllm_config,
                kv_cache_config=kv_cache_config,
                structured_output_manager=NoGrammar(),
                block_size=plan.scenario.scheduler_block_size,
                hash_block_size=plan.scenario.hash_block_size,
                log_stats=plan.log_stats,
            )

    def create_connector(self, **_: object) -> RandomConnector | None:
        """Replace vLLM's factory of connectors."""
        return self.connector

    def publish(self, batch: Any) -> None:
        """Replace vLLM's publisher of events."""
        self.published.extend(batch.events)

    def add(self, new_request: NewRequest, arrival: int, priority: int) -> None:
        request = make_request(new_request, self._hasher)
        request.arrival_time = float(arrival)
        request.priority = priority
        self.scheduler.add_request(request)

    def abort(self, request_ids: list[str]) -> None:
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def reset(self, *, running: bool) -> bool:
        """Reset the prefix cache, and return whether it was reset. Return False also if vLLM raises
        after it has preempted every running request."""
        try:
            return bool(self.scheduler.reset_prefix_cache(reset_running_requests=running))
        except RuntimeError:
            return False

    def take_published(self) -> list[Any]:
        published, self.published = self.published, []
        return published
