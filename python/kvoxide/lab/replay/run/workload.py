"""Describe a workload and the trace that its runs share."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kvoxide._core import (
    HostMemory,
    KVCacheGroupSpec,
    Policy,
    Serving,
    Simulation,
    Trace,
)


class SharedTrace:
    """A trace that is built when the first of its users needs it and let go after the last one.

    Pickled, it takes the trace along and has no users.
    """

    def __init__(self, num_requests: int, build: Callable[[], Trace]) -> None:
        """``num_requests`` is the length of what ``build`` will return."""
        self.num_requests = num_requests
        self._build = build
        self._lock = threading.Lock()
        self._users = 0
        self._trace: Trace | None = None

    def add_user(self) -> None:
        """Announce one more :meth:`borrowed`."""
        self._users += 1

    @contextmanager
    def borrowed(self) -> Iterator[Trace]:
        """The trace, for one user that was announced with :meth:`add_user`."""
        with self._lock:
            if self._trace is None:
                self._trace = self._build()
            trace = self._trace
        try:
            yield trace
        finally:
            self.drop_user()

    def drop_user(self) -> None:
        """One user that was announced needs it no more."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._trace = None

    @classmethod
    def of(cls, trace: Trace) -> "SharedTrace":
        """A trace that is there."""
        return cls(len(trace), lambda: trace)

    def __reduce__(self) -> tuple[Callable[[Trace], "SharedTrace"], tuple[Trace]]:
        """The trace, built if it is not there."""
        with self._lock:
            return SharedTrace.of, (self._trace or self._build(),)


@dataclass(frozen=True)
class Workload:
    """A trace and the way it is scheduled. All compared policies have the same workload.

    ``concurrency`` is in requests, ``max_batched_tokens`` in tokens per step. Requests before
    ``report_from`` (0-based) only warm the cache. ``quantity`` is the workload's place on an
    experiment's axis. With ``has_bound``, results contain the bound. ``serving`` says how time
    passes; None means without times. With ``follows_schedule``, requests run in the recorded
    server's steps, if the trace has them. ``rules`` are the settings that the recorded scheduler
    passed to its manager. Without ``prefix_caching`` there are no hits.
    """

    trace: SharedTrace
    groups: tuple[KVCacheGroupSpec, ...]
    concurrency: int
    max_batched_tokens: int
    report_from: int = 0
    quantity: int = 0
    has_bound: bool = False
    serving: Serving | None = None
    follows_schedule: bool = False
    rules: Mapping[str, Any] | None = None
    prefix_caching: bool = True

    def simulation(
        self,
        trace: Trace,
        policy: Policy,
        blocks: int | None,
        baseline: str | None = None,
        release: Mapping[str, Any] | None = None,
        host_memory: HostMemory | None = None,
    ) -> Simulation:
        """Return a simulation of ``trace`` under this workload's settings.

        ``baseline`` is a simple policy that orders evictions instead of ``policy``. ``release`` are
        the rules of a chosen vLLM release. With ``host_memory`` there is no bound, because it
        would know only the pool.
        """
        return Simulation(
            trace,
            self.groups,
            blocks,
            policy=policy,
            baseline=baseline,
            concurrency=self.concurrency,
            max_batched_tokens=self.max_batched_tokens,
            report_from=self.report_from,
            bound=self.has_bound and host_memory is None,
            serving=self.serving,
            follows_schedule=self.follows_schedule and trace.has_schedule,
            rules=self.rules,
            release=release,
            enable_caching=self.prefix_caching,
            host_memory=host_memory,
        )
