"""Logs one warning if requests wait for blocks that never become free.

In this case vLLM's scheduler tries again for ever and logs nothing. It happens if a request needs
more blocks than the pool has. It also happens if requests hold blocks that others wait for, as
sessions with streaming input can. :func:`watch` only observes; it changes no decision.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from kvoxide.vllm.environment import logger

STEPS: Final = 1_000
"""The warning comes after this many steps in a row in which no request got a token and none
ended."""
SECONDS: Final = 10.0
"""The same limit as a time, for slow steps."""
NAMED_HOLDERS: Final = 5

_NO_HOLDER: Final = "kvoxide: a request that holds nothing"


def watch(scheduler: Any) -> None:
    """Observe each request that comes to ``scheduler`` and each of its steps from now on.

    ``scheduler`` has kvoxide's manager. If it lacks vLLM's methods, it is not observed.
    """
    if not (hasattr(scheduler, "schedule") and hasattr(scheduler, "add_request")):
        return
    watcher = _Watcher(scheduler)
    scheduler.schedule = watcher.watch_steps(scheduler.schedule)
    scheduler.add_request = watcher.watch_arrivals(scheduler.add_request)


class _Watcher:
    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._num_idle_steps = 0
        self._idle_since = 0.0
        self._has_warned = False
        self._never_fit: WeakSet[Any] = WeakSet()

    def watch_steps(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        def watched_schedule(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            if output.total_num_scheduled_tokens or output.finished_req_ids:
                if self._num_idle_steps:
                    self._num_idle_steps = 0
                    self._has_warned = False
                if output.scheduled_cached_reqs.resumed_req_ids:
                    self._check_resumed(output.scheduled_cached_reqs.resumed_req_ids)
            elif not self._has_warned:
                self._note_idle_step()
            return output

        return watched_schedule

    def watch_arrivals(self, add_request: Callable[..., Any]) -> Callable[..., Any]:
        def watched_add_request(request: Any, *args: Any, **kwargs: Any) -> Any:
            result = add_request(request, *args, **kwargs)
            # A session with streaming input arrives again, as a part of a request that exists
            # already.
            known = self._scheduler.requests.get(request.request_id)
            if known is not None:
                _log_errors_of(self._warn_unless_it_fits, known)
            return result

        return watched_add_request

    def _check_resumed(self, request_ids: Any) -> None:
        """Check preempted requests that come back. They may be longer than when they arrived."""
        for request_id in request_ids:
            request = self._scheduler.requests.get(request_id)
            if request is not None:
                _log_errors_of(self._warn_unless_it_fits, request)

    def _warn_unless_it_fits(self, request: Any) -> None:
        needed = _num_blocks_needed(self._scheduler, request, held=False)
        available = self._scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1
        if needed > available and request not in self._never_fit:
            self._never_fit.add(request)
            logger.warning(
                "kvoxide: request %s can never finish: its %d tokens need %d blocks at once, and "
                "the pool has %d. Requests after it may wait forever. Abort it, add KV cache "
                "memory, or lower --max-model-len.",
                request.request_id,
                request.num_tokens,
                needed,
                available,
            )

    def _note_idle_step(self) -> None:
        now = monotonic()
        if not self._num_idle_steps:
            self._idle_since = now
        self._num_idle_steps += 1
        if self._num_idle_steps >= STEPS or now - self._idle_since >= SECONDS:
            _log_errors_of(self._warn_of_standstill, now - self._idle_since)

    def _warn_of_standstill(self, seconds: float) -> None:
        request = next(_waiting_for_blocks(self._scheduler), None)
        if request is None:  # the others wait for a transfer, a grammar or more input
            self._num_idle_steps = 0
            return
        self._has_warned = True
        logger.warning(
            "kvoxide: no request was scheduled or ended in %d steps (%.1f s): %s. Abort a request "
            "that holds blocks, or add KV cache memory.",
            self._num_idle_steps,
            seconds,
            _describe(self._scheduler, request),
        )


def _log_errors_of(look: Callable[..., None], *args: Any) -> None:
    """Call ``look``. If it raises, log the error and keep it from the scheduler."""
    try:
        look(*args)
    except Exception as error:
        logger.debug(
            "kvoxide: the check for stuck requests failed: %r. Serving continues. Please report "
            "this error.",
            error,
        )


def _waiting_for_blocks(scheduler: Any) -> Iterator[Any]:
    """Yield the requests that wait for blocks, in the order in which they arrived."""
    from vllm.v1.request import RequestStatus

    if scheduler.pause_state.name != "UNPAUSED":
        return
    statuses = RequestStatus.WAITING, RequestStatus.PREEMPTED, RequestStatus.RUNNING
    for request in scheduler.requests.values():
        if request.status in statuses and not request.num_in_flight_tokens:
            yield request


def _num_blocks_needed(scheduler: Any, request: Any, held: bool) -> int:
    """Return how many blocks ``request`` needs until all of its tokens have slots, in addition to
    the blocks that it holds. Without ``held``, count for an empty pool."""
    manager = scheduler.kv_cache_manager
    num_tokens = min(request.num_tokens, scheduler.max_model_len)
    computed = request.num_computed_tokens if held else 0
    needed: int = manager.coordinator.get_num_blocks_to_allocate(
        request_id=request.request_id if held else _NO_HOLDER,
        num_tokens=num_tokens,
        new_computed_blocks=manager.empty_kv_cache_blocks.blocks,
        num_encoder_tokens=0,
        total_computed_tokens=computed,
        num_local_computed_tokens=computed,
        num_tokens_main_model=num_tokens,
        apply_admission_cap=True,
        prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
    )
    return max(needed, 0)


def _describe(scheduler: Any, request: Any) -> str:
    pool = scheduler.kv_cache_manager.block_pool
    needed, free = _num_blocks_needed(scheduler, request, held=True), pool.get_num_free_blocks()
    return (
        f"request {request.request_id} ({request.status.name}) waits for {needed} more blocks for "
        f"its {request.num_tokens} tokens; {free} of {pool.num_gpu_blocks - 1} blocks are free"
        f"{_describe_holders(scheduler)}"
    )


@dataclass(frozen=True)
class _Holder:
    name: str
    blocks: frozenset[int]


def _describe_holders(scheduler: Any) -> str:
    holders = sorted(_holders(scheduler), key=lambda holder: -len(holder.blocks))
    parts = [f"{holder.name} holds {len(holder.blocks)}" for holder in holders[:NAMED_HOLDERS]]
    if len(holders) > NAMED_HOLDERS:
        rest = frozenset[int]().union(*(holder.blocks for holder in holders[NAMED_HOLDERS:]))
        parts.append(f"{len(holders) - NAMED_HOLDERS} other requests hold {len(rest)}")
    pool = scheduler.kv_cache_manager.block_pool
    of_requests = frozenset[int]().union(*(holder.blocks for holder in holders))
    others = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks() - len(of_requests)
    if others > 0:
        parts.append(f"a connector or unfinished copies hold {others}")
    return "; " + "; ".join(parts) if parts else ""


def _holders(scheduler: Any) -> Iterator[_Holder]:
    manager = scheduler.kv_cache_manager
    for request_id in manager.engine.request_ids():
        blocks = frozenset(i for ids in manager.get_block_ids(request_id) for i in ids if i)
        request = scheduler.requests.get(request_id)
        status = "ended" if request is None else request.status.name
        if blocks:
            yield _Holder(f"{request_id} ({status})", blocks)
