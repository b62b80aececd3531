"""A tier below the primary one, and the memory of the primary one."""

from collections.abc import Iterable
from inspect import signature
from typing import Any

import numpy as np
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadPolicy,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering import backpressure, manager, metrics
from vllm.v1.kv_offload.tiering.backpressure import EMABackpressureDetector
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .scenario import TieringScenario

ROW_BYTES = 8
_NEEDED_FAILURES = "failure_threshold"
_KNOWS_FAILURES = _NEEDED_FAILURES in signature(EMABackpressureDetector.__init__).parameters
_FAILURES = {_NEEDED_FAILURES: 3} if _KNOWS_FAILURES else {}


class Clock:
    """The time of both sides, which the traffic advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


CLOCK = Clock()
for module in (backpressure, manager, metrics):
    module.time = CLOCK


class Region:
    """The memory of a primary tier."""

    def __init__(self, num_chunks: int) -> None:
        self._rows: Any = np.zeros((num_chunks, ROW_BYTES), dtype=np.uint8)
        self.is_cleaned_up = False

    def create_kv_memoryview(self) -> memoryview:
        return memoryview(self._rows)

    def cleanup(self) -> None:
        self.is_cleaned_up = True


class ScriptedTier(SecondaryTierManager):  # type: ignore[misc]
    """A tier whose jobs end when :meth:`finish` is called. A quarter of the keys is looked up in
    the background, so the first answer for them is to ask again."""

    medium = Medium.STORAGE

    def __init__(self, scenario: TieringScenario, place: int, view: memoryview) -> None:
        detector = None
        if scenario.has_pressure:
            detector = EMABackpressureDetector(0.010, 0.002, **_FAILURES)
        super().__init__(None, view, f"scripted-{place}", detector)
        self.tolerates_off_thread_polling = scenario.is_polled and place == scenario.num_tiers - 1
        self._is_request_level = scenario.is_request_level and place == 0
        self.journal: list[Any] = []
        self.running: list[TransferJob] = []
        self.waiting: list[tuple[str, list[bytes]]] = []
        """Requests of others, which are served when the manager lets the tier do so."""
        self._held: dict[bytes, None] = {}
        self._looked_up: set[bytes] = set()
        self._done: list[JobResult] = []
        self._events: list[OffloadingEvent] = []

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        self.journal.append(("lookup", key, req_context.req_id))
        if key[0] % 4 == 0 and key not in self._looked_up:
            self._looked_up.add(key)
            return LookupResult.RETRY
        return LookupResult.HIT if key in self._held else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._submit("store", job_metadata)

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._submit("load", job_metadata)

    def _submit(self, what: str, job: TransferJob) -> None:
        chunks = job.chunk_ids
        noted = (job.job_id, list(job.keys), chunks.dtype.name, chunks.tolist())
        self.journal.append((what, *noted, job.req_context.req_id))
        job.submit_time = CLOCK.now
        self.running.append(job)

    def finish(self, place: int, outcome: str) -> None:
        """End a running job for ``all`` of its keys, ``some`` or ``none``."""
        job = self.running.pop(place % len(self.running))
        keys = list(job.keys)
        loaded = keys[: len(keys) // 2] if outcome == "some" and job.is_promotion else None
        self._done.append(JobResult(job.job_id, outcome == "all", loaded, 0.25))
        if outcome == "all" and not job.is_promotion:
            self._held.update(dict.fromkeys(keys))
            self._events.append(OffloadingEvent(keys=keys, medium=self.medium, removed=False))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        done, self._done = self._done, []
        return done

    def drain_jobs(self) -> None:
        self.journal.append("drain_jobs")
        while self.running:
            self.finish(0, "none" if self.running[0].job_id % 4 == 0 else "all")

    def has_pending_work(self) -> bool:
        return bool(self._done)

    def take_events(self) -> Iterable[OffloadingEvent]:
        events, self._events = self._events, []
        return events

    def touch(self, keys: Any, req_context: Any) -> None:
        self.journal.append(("touch", list(keys)))

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        self.journal.append(("new", req_context.req_id))
        level = OffloadPolicy.REQUEST_LEVEL if self._is_request_level else OffloadPolicy.CHUNK_LEVEL
        return RequestOffloadingContext(policy=level)

    def on_request_finished(self, req_context: Any) -> None:
        self.journal.append(("finished", req_context.req_id))

    def serve_external_requests(self, parent: Any) -> None:
        waiting, self.waiting = self.waiting, []
        for name, keys in waiting:
            context = ReqContext(name)
            parent.on_new_request(context)
            answers = [parent.lookup(key, context) for key in keys]
            self.journal.append((name, answers))
            hits = [
                key for key, answer in zip(keys, answers, strict=True) if answer is LookupResult.HIT
            ]
            is_late = keys[0][1] % 2 == 0  # it reads after its end
            if is_late:
                parent.on_request_finished(context)
            if hits:
                self._submit("read", parent.create_store_job(hits, context))
            if not is_late:
                parent.on_request_finished(context)

    def on_schedule_end(self, context: Any) -> None:
        self.journal.append(("end of step", list(context.new_req_ids)))
