"""Finds out what the requests in a scheduler's queues wait for."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, Literal, TypeAlias, get_args

OutsideReason: TypeAlias = Literal["remote_load", "connector_later", "grammar"]
OUTSIDE_REASONS: Final[tuple[OutsideReason, ...]] = get_args(OutsideReason)

MAX_EXAMINED: Final = 256
"""How many requests of each queue are examined, so that a look at a long queue stays cheap."""

_ANSWER: Final = "get_num_new_matched_tokens"


@dataclass(frozen=True)
class Queues:
    """The requests at the front of a scheduler's queues.

    ``outside`` has those that something outside of the scheduler must release. ``head`` is the
    first of the others. The scheduler admits it before all requests after it.
    """

    outside: dict[OutsideReason, list[Any]] = field(default_factory=dict)
    head: Any = None


def examine(scheduler: Any, later: Collection[str]) -> Queues:
    """Return what the requests in the queues wait for. ``later`` has the ids of requests for which
    the connector had no answer in the last step."""
    outside: dict[OutsideReason, list[Any]] = {}
    head = None
    for request in _requests(scheduler):
        reason = outside_reason(scheduler, request, later)
        if reason is not None:
            outside.setdefault(reason, []).append(request)
        elif head is None and not _is_skipped(request):
            head = request
    return Queues(outside, head)


def outside_reason(scheduler: Any, request: Any, later: Collection[str]) -> OutsideReason | None:
    """Return what outside of the scheduler must release a request, or None."""
    match request.status.name:
        case "WAITING_FOR_REMOTE_KVS":
            is_loaded = request.request_id in scheduler.finished_recving_kv_req_ids
            return None if is_loaded else "remote_load"
        case "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR":
            output = request.structured_output_request
            return "grammar" if output is None or output.grammar is None else None
    return "connector_later" if request.request_id in later else None


def asks_connector(scheduler: Any) -> bool:
    """Return whether the next step may ask the connector about a waiting request."""
    return scheduler.connector is not None and bool(scheduler.waiting or _holding(scheduler))


@contextmanager
def noting_no_answer(connector: Any) -> Iterator[set[str]]:
    """Collect the ids of the requests for which a connector cannot answer yet how much it has. If
    the connector's method cannot be replaced, collect none."""
    later: set[str] = set()
    answer: Any = getattr(connector, _ANSWER, None)

    def noted(request: Any, *args: Any, **kwargs: Any) -> Any:
        result = answer(request, *args, **kwargs)
        if isinstance(result, tuple) and result[0] is None:
            later.add(request.request_id)
        return result

    attributes = getattr(connector, "__dict__", {})
    is_replaced = callable(answer) and _ANSWER not in attributes and _try_to_set(connector, noted)
    try:
        yield later
    finally:
        if is_replaced:
            attributes.pop(_ANSWER, None)


def _try_to_set(connector: Any, answer: Any) -> bool:
    """Replace a connector's method for this object alone, and return whether that worked."""
    try:
        setattr(connector, _ANSWER, answer)
    except Exception:
        return False
    return True


def _requests(scheduler: Any) -> Iterator[Any]:
    """Yield waiting requests in the order in which the scheduler examines them."""
    queues = []
    if scheduler.pause_state.name != "PAUSED_ALL":
        queues.append(_holding(scheduler))
    if scheduler.pause_state.name == "UNPAUSED":
        queues.append(scheduler.waiting)
    return chain.from_iterable(islice(queue, MAX_EXAMINED) for queue in queues)


def _holding(scheduler: Any) -> Any:
    """Return the queue of waiting requests that hold blocks."""
    return getattr(scheduler, "kv_holding_waiting", ())


def _is_skipped(request: Any) -> bool:
    """Return whether the scheduler passes a request over, which is no fault: a session waits for
    its client, or tokens are in flight."""
    return request.status.name == "WAITING_FOR_STREAMING_REQ" or bool(request.num_in_flight_tokens)
