"""Reads what a recording holds about CPU memory: the settings of vLLM's offloading connector, and
its transfers."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kvoxide.vllm.offload import NO_REQUEST


class NewTransfers(NamedTuple):
    """The transfers that begin in a step, as pairs of a job and its request.

    ``leaving`` are the stores that belong to no request. ``ended`` are the requests that have
    ended, in the order in which they offer their last blocks in this step. ``num_asked`` is how
    many blocks are stored for loads that wait for this step.
    """

    loads: list[tuple[int, str]]
    stores: list[tuple[int, str]]
    leaving: list[int]
    ended: list[str]
    num_asked: int = 0

    @property
    def are_any(self) -> bool:
        """Whether a step without tokens changes CPU memory."""
        return any(self)


NO_TRANSFERS: Final = NewTransfers([], [], [], [])


class Transfers:
    """The transfers of a scheduler's connector that have not ended."""

    def __init__(self) -> None:
        """Start without transfers."""
        self._jobs: set[int] = set()
        # The requests of loads.
        self._loads: dict[int, str] = {}
        # Requests whose loads began before a reset of CPU memory. The connector has forgotten them.
        self._forgotten: dict[str, int] = {}
        self._completed: list[int] = []
        self._received: list[str] = []

    def begin(self, output: Any, connector: Any) -> NewTransfers:
        """Return the transfers that begin in a step. Loads that end with the step are left out."""
        metadata = getattr(output, "kv_connector_metadata", None)
        if metadata is None:
            return NO_TRANSFERS
        loads, stores = _jobs(metadata, "load_jobs"), _jobs(metadata, "store_jobs")
        self._jobs.update(job for job, _ in (*loads, *stores))
        self._loads.update(loads)
        of_requests = [(job, name) for job, name in stores if name != NO_REQUEST]
        leaving = [job for job, name in stores if name == NO_REQUEST]
        num_asked = getattr(getattr(connector, "connector_scheduler", None), "num_asked", 0)
        # This is a set. The connector iterates over the same object.
        ended = list(output.finished_req_ids)
        return NewTransfers(loads, of_requests, leaving, ended, num_asked)

    def note_completed(self, model_runner_output: Any) -> None:
        """Note the order in which workers report ended transfers. A connector ends them in this
        order, and may change the report."""
        output = getattr(model_runner_output, "kv_connector_output", None)
        metadata = getattr(output, "kv_connector_worker_meta", None)
        self._completed = list(getattr(metadata, "completed_jobs", ()))
        # This is a set. The scheduler iterates over the same object.
        self._received = list(getattr(output, "finished_recving", None) or ())

    def reset(self) -> None:
        """Note that CPU memory was emptied. Loads in progress still end, and stores do not."""
        self._forgotten.update((name, job) for job, name in self._loads.items())
        self._jobs.clear()
        self._loads.clear()

    def take_ended(self, connector: Any) -> list[int]:
        """Return the transfers that have ended since the last call, in this order."""
        received = (self._forgotten.pop(name, None) for name in self._received)
        return [*(job for job in received if job is not None), *self._take_ended(connector)]

    def _take_ended(self, connector: Any) -> list[int]:
        if not self._jobs:
            return []
        open_jobs = getattr(getattr(connector, "connector_scheduler", None), "_jobs", None)
        if open_jobs is None:
            return []
        ended = {job for job in self._jobs if job not in open_jobs}
        self._jobs -= ended
        for job in ended:
            self._loads.pop(job, None)
        reported = [job for job in self._completed if job in ended]
        return reported + sorted(ended.difference(reported))


def _jobs(metadata: Any, name: str) -> list[tuple[int, str]]:
    jobs = getattr(metadata, name, None)
    if not isinstance(jobs, Mapping):
        return []
    return [(number, job.req_id) for number, job in jobs.items() if not getattr(job, "sync", False)]


def host_memory_of(scheduler: Any) -> dict[str, Any] | None:
    """Return the settings of vLLM's CPU memory, by the names of ``kvoxide.HostMemory``. Return None
    without CPU memory, or for a connector that a replay cannot play."""
    try:
        connector = scheduler.connector.connector_scheduler
        config = connector.config
        extra = scheduler.vllm_config.kv_transfer_config.kv_connector_extra_config
        is_ours = getattr(connector, "decides_together", False)
        num_chunks, num_bytes = _size_of(connector.manager, extra, is_ours=is_ours)
        if num_chunks < 1 or config.blocks_per_chunk != 1:
            return None
        return {
            "num_chunks": num_chunks,
            "chunk_bytes": num_bytes // num_chunks,
            "eviction_policy": "adaptive" if is_ours else str(extra.get("eviction_policy", "lru")),
            "store_threshold": 0 if is_ours else int(extra.get("store_threshold", 0)),
            "max_tracker_size": int(extra.get("max_tracker_size", 64_000)),
            "offload_prompt_only": bool(config.offload_prompt_only),
        }
    except Exception:
        return None


def _size_of(manager: Any, extra: Mapping[str, Any], *, is_ours: bool) -> tuple[int, int]:
    """Return the size of CPU memory in chunks and in bytes. In vLLM 0.32.0, only adaptive can be
    played, and only kvoxide's manager knows its size."""
    if is_ours and not hasattr(manager, "config_info"):
        return manager.tier.num_chunks, int(extra["cpu_bytes_to_use"])
    (info,) = manager.config_info()
    return int(info["cpu_num_chunks"]), int(info["cpu_kv_cache_size_bytes"])
