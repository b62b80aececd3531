"""Wraps methods of vLLM's scheduler so that they report events to a recorder."""

import os
import time
import weakref
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, Final

from kvoxide.vllm.environment import (
    compiled_module_problem,
    log_recording_off,
    logger,
    observed_engine,
    settings,
)

_RECORDER: Final = "_kvoxide_recorder"


def take_over(module: ModuleType) -> None:
    """Wrap the methods of vLLM's scheduler that report events. A second call changes nothing."""
    scheduler = getattr(module, "Scheduler", None)
    if scheduler is None or hasattr(scheduler, _RECORDER):
        return
    setattr(scheduler, _RECORDER, None)
    for name, wrapper in (_WRAPPERS | _OPTIONAL_WRAPPERS).items():
        original = getattr(scheduler, name, None)
        if original is not None:  # a vLLM without this method is not recorded; _start() logs it
            setattr(scheduler, name, wrapper(original))


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        setattr(self, _RECORDER, _start(self))

    return init


def _schedule(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = self._kvoxide_recorder
        if recorder is None or not recorder.is_on:
            return original(self, *args, **kwargs)
        started = time.perf_counter()
        output = original(self, *args, **kwargs)
        recorder.step_scheduled(started, output, self)
        return output

    return schedule


def _update_from_output(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def update_from_output(
        self: Any, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any
    ) -> Any:
        recorder = self._kvoxide_recorder
        if recorder is not None and recorder.is_on and self.connector is not None:
            recorder.note_completed(model_runner_output)
        result = original(self, scheduler_output, model_runner_output, *args, **kwargs)
        if recorder is not None and recorder.is_on:
            if self.connector is not None:
                recorder.note_transfers(self.connector)
            recorder.step_ends(scheduler_output, has_more=self.has_unfinished_requests())
        return result

    return update_from_output


def _free_request(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def free_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = self._kvoxide_recorder
        if recorder is not None and recorder.is_on:
            recorder.request_ends(request)
        return original(self, request, *args, **kwargs)

    return free_request


def _preempt_request(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def preempt_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = self._kvoxide_recorder
        if recorder is not None and recorder.is_on:
            recorder.preempted(request)
        return original(self, request, *args, **kwargs)

    return preempt_request


def _reset_prefix_cache(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def reset_prefix_cache(
        self: Any, reset_running_requests: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        recorder = self._kvoxide_recorder
        done = False
        try:
            done = original(self, reset_running_requests, *args, **kwargs)
        finally:
            if recorder is not None and recorder.is_on:
                is_empty = bool(done) or _has_empty_cache(self)
                recorder.cache_reset(preempts=bool(reset_running_requests), is_empty=is_empty)
        return done

    return reset_prefix_cache


def _reset_connector_cache(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def reset_connector_cache(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, *args, **kwargs)
        recorder = self._kvoxide_recorder
        if recorder is not None and recorder.is_on and done:
            recorder.host_reset()
        return done

    return reset_connector_cache


def _finish_requests(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def finish_requests(
        self: Any, request_ids: Any, finished_status: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(self, request_ids, finished_status, *args, **kwargs)
        recorder = self._kvoxide_recorder
        if recorder is not None:
            recorder.requests_left(self.has_unfinished_requests())
        if request_ids is None and recorder is not None:
            # All requests end at once. A server that stops begins with this call, and may be killed
            # before it shuts down.
            recorder.flush()
        return result

    return finish_requests


def _shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = self._kvoxide_recorder
        if recorder is not None:
            recorder.close()
        return original(self, *args, **kwargs)

    return shutdown


def _has_empty_cache(scheduler: Any) -> bool:
    """Return whether a reset emptied the cache although it returned false, as when a connector
    failed. A cache without keys can still have blocks in use, which refuse a reset."""
    try:
        pool = scheduler.kv_cache_manager.block_pool
        num_used = pool.num_gpu_blocks - pool.get_num_free_blocks()
        return num_used == 1 and len(pool.cached_block_hash_to_block) == 0
    except Exception:
        return False


_WRAPPERS: Final = {
    "__init__": _init,
    "schedule": _schedule,
    "update_from_output": _update_from_output,
    "_free_request": _free_request,
    "_preempt_request": _preempt_request,
    "reset_prefix_cache": _reset_prefix_cache,
    "finish_requests": _finish_requests,
    "shutdown": _shutdown,
}
_OPTIONAL_WRAPPERS: Final = {"reset_connector_cache": _reset_connector_cache}


def _start(scheduler: Any) -> Any:
    """Return a recorder for a scheduler. If there cannot be one, log one line and return None."""
    folder = settings.recording_folder()
    if folder is None:
        return None
    if reasons := _reasons(scheduler):
        log_recording_off(folder, "; ".join(reasons))
        return None
    from kvoxide.vllm.recording.header import header_of
    from kvoxide.vllm.recording.limit import default_limit
    from kvoxide.vllm.recording.recorder import Recorder

    try:
        limit = settings.recording_limit()
        folder.mkdir(parents=True, exist_ok=True)
        limit = default_limit(folder) if limit is None else limit
        recorder = Recorder(
            folder,
            header_of(scheduler, time.time()),
            limit or None,
            take_outcomes=_take_outcomes(scheduler),
            max_priority=settings.parse_max_priority(os.environ),
        )
    except Exception as error:
        reason = error if isinstance(error, OSError | settings.SettingsError) else repr(error)
        log_recording_off(folder, reason)
        return None
    weakref.finalize(scheduler, recorder.close)
    logger.info("kvoxide: recording requests and steps to %s.", folder)
    return recorder


def _take_outcomes(scheduler: Any) -> Callable[[], Any]:
    """Return a function that returns the outcomes of newly admitted prompts, as
    ``VllmManager.take_outcomes`` does. It returns none while no engine of kvoxide gets the
    scheduler's calls, or if the engine failed."""
    if (engine := observed_engine(scheduler)) is not None:
        engine.observe_outcomes(per_request=True)
    scheduler_ref = weakref.ref(scheduler)

    def take_outcomes() -> Any:
        scheduler = scheduler_ref()
        try:
            engine = None if scheduler is None else observed_engine(scheduler)
            return () if engine is None else engine.take_outcomes()
        except Exception:  # the scheduler gets the same error from the engine itself
            return ()

    return take_outcomes


def _reasons(scheduler: Any) -> list[str]:
    if problem := compiled_module_problem():
        return [problem]
    if missing := [name for name in _WRAPPERS if not hasattr(scheduler, name)]:
        return [f"the scheduler of this vLLM has no {', '.join(missing)}"]
    if scheduler.connector is None and not scheduler.cache_config.enable_prefix_caching:
        return ["prefix caching is off, so blocks have no hashes to record"]
    return []
