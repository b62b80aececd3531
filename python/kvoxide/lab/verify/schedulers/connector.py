"""A KV connector that has tokens of some requests, and notes every call."""

import random
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

from kvoxide.lab.verify.schedulers.plan import Plan


class NotedCalls(KVConnectorMetadata):  # type: ignore[misc]
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls


class RandomConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Its tokens of a request depend on the request and on how often it was preempted, not on the
    time of the call.

    ``loading`` and ``sending`` are requests that wait until the worker has finished.
    """

    def __init__(self, plan: Plan, vllm_config: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, KVConnectorRole.SCHEDULER, kv_cache_config)
        self._plan = plan
        self._calls: list[Any] = []
        self._num_queries: dict[str, int] = {}
        self.loading: list[str] = []
        self.sending: list[str] = []

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return self._plan.connector_diverges

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        rng = self._rng_of(request, "matched")
        if rng.random() >= self._plan.external_share:
            return 0, False
        if rng.random() < 0.1 and self._count_query(request) == 1:
            return None, False
        is_async = rng.random() < self._plan.loads_asynchronously
        size = self._plan.scenario.scheduler_block_size
        longest = request.num_tokens if is_async else request.num_tokens - 1
        num_matched = rng.choice((rng.randint(0, longest), longest // size * size, longest))
        num_external = max(0, num_matched - num_computed_tokens)
        return num_external, is_async and num_external > 0

    def _count_query(self, request: Any) -> int:
        """Count a query about a request. Return how many there were since its last preemption."""
        key = f"{request.request_id} {request.num_preemptions}"
        self._num_queries[key] = self._num_queries.get(key, 0) + 1
        return self._num_queries[key]

    def _rng_of(self, request: Any, what: str) -> random.Random:
        preemptions = request.num_preemptions
        return random.Random(f"{self._plan.seed} {what} {request.request_id} {preemptions}")

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        ids = blocks.get_block_ids()
        self._calls.append(("allocated", request.request_id, ids, num_external_tokens))

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        calls, self._calls = self._calls, []
        state = getattr(scheduler_output, "kv_connector_block_state", None)
        if state is not None:
            rows = {r: state.resolve_block_ids(r) for r in sorted(state.req_ids)}
            calls.append(("rows", rows))
            calls.append(("offered states", dict(state.boundary_state_offloads)))
        return NotedCalls(calls)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        self._calls.append(("finished", request.request_id, block_ids))
        share = 0.0 if request.request_id in self.loading else self._plan.delayed_free_share
        is_delayed = self._rng_of(request, "finished").random() < share
        if is_delayed:
            self.sending.append(request.request_id)
        return is_delayed, None

    def register_finished_partial_tail(
        self, request: Any, block_ids: tuple[list[int], ...], partial_tail_offloads: Any
    ) -> bool:
        self._calls.append(("tail", request.request_id, block_ids, list(partial_tail_offloads)))
        return False

    def start_load_kv(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError

    def save_kv_layer(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def wait_for_save(self) -> None:
        raise NotImplementedError
