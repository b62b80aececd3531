"""The entry point that vLLM calls in every process. It arranges for kvoxide's manager to be
constructed.

vLLM's class ``KVCacheManager`` stays the object that other modules have imported. Its ``__new__``
decides for each construction: an instance of kvoxide's subclass, of the shadow, or of the class
itself.
"""

import importlib.util
import os
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kvoxide.vllm.environment import Reason, Settings, SettingsError, settings
from kvoxide.vllm.metrics import IN_API_SERVERS, IN_ENGINES, engines_report
from kvoxide.vllm.plugin import hashing, host, standstill
from kvoxide.vllm.plugin.decision import build_manager, fall_back
from kvoxide.vllm.plugin.on_import import when_imported
from kvoxide.vllm.recording import take_over as record

MANAGER_MODULE: Final = "vllm.v1.core.kv_cache_manager"
SCHEDULER_MODULE: Final = "vllm.v1.core.sched.scheduler"


def register() -> None:
    """Arrange for kvoxide's manager in this process, and for metrics and a recording in every mode.
    The call is cheap, and a second call changes nothing.

    Raises :class:`~kvoxide.vllm.environment.SettingsError` for a wrong retention interval or
    pinning value in every mode but ``off``. Everything else is decided when a manager is
    constructed.
    """
    try:
        mode = settings.parse_mode(os.environ)
    except SettingsError:
        mode = "auto"  # build_manager() reports it, in the process that needs to know
    _export_metrics()
    if mode != "off":
        _arrange()
    # After the rest, because a recording has the policies that are in force.
    if settings.recording_folder() is not None:
        when_imported(SCHEDULER_MODULE, record)


def _arrange() -> None:
    _check_policies()
    _make_variables_known()
    if not _exists(MANAGER_MODULE):
        missing = f"this vLLM has no module {MANAGER_MODULE}; install a supported release"
        fall_back([Reason(missing, "unsupported_vllm")])
        return
    when_imported(MANAGER_MODULE, _take_over)
    when_imported(SCHEDULER_MODULE, _guard)
    settings.parse_host_mode(os.environ)  # a wrong value stops the server here
    settings.parse_host_policy(os.environ)
    for replaced_class in host.REPLACED_CLASSES:
        when_imported(replaced_class.module, replaced_class.take_over)
    when_imported(host.TIERING_MODULE, host.guard_other_tiers)
    when_imported(hashing.UTILS_MODULE, hashing.take_over)
    when_imported(hashing.ENGINE_MODULE, hashing.take_over_engine)


def _export_metrics() -> None:
    """Arrange for kvoxide's metrics. Engines on which kvoxide does nothing send none."""
    callbacks = IN_API_SERVERS
    if engines_report():
        callbacks += IN_ENGINES
    for module, callback in callbacks:
        when_imported(module, callback)


def _check_policies() -> None:
    with suppress(ImportError):  # the compiled module is missing; build_manager() reports it
        Settings.from_environ({**os.environ, settings.MODE_VARIABLE: "auto"})


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _make_variables_known() -> None:
    """Register kvoxide's variables with vLLM. It warns of unknown ``VLLM_`` variables, or refuses
    to start."""
    with suppress(ImportError, AttributeError):
        from vllm import envs

        for variable in settings.POLICY_VARIABLES:
            if variable in os.environ:
                envs.environment_variables.setdefault(variable, _reader(variable))


def _reader(variable: str) -> Callable[[], str | None]:
    return lambda: os.environ.get(variable)


def _take_over(module: ModuleType) -> None:
    stock = getattr(module, "KVCacheManager", None)
    if stock is not None and foreign_reason(module) is None:
        stock.__new__ = _DISPATCHER


def _dispatch(cls: type, *args: Any, **kwargs: Any) -> Any:
    """Replace ``KVCacheManager.__new__``. Subclasses, vLLM's own and others, are constructed as
    usual."""
    if vars(cls).get("__new__") is not _DISPATCHER:
        return object.__new__(cls)
    return build_manager(cls, args, kwargs)


_DISPATCHER: Final = staticmethod(_dispatch)


def foreign_reason(module: ModuleType) -> str | None:
    """Return why the manager class in vLLM's module is no longer vLLM's, or None if it is vLLM's or
    kvoxide's."""
    cls = getattr(module, "KVCacheManager", None)
    if cls is None:
        return f"{MANAGER_MODULE} has no KVCacheManager"
    if (cls.__module__, cls.__qualname__) != (MANAGER_MODULE, "KVCacheManager"):
        return f"another plugin replaced vLLM's KVCacheManager with {_name(cls)}"
    new = vars(cls).get("__new__")
    if new not in (None, _DISPATCHER):
        return f"another plugin replaced KVCacheManager.__new__ with {_name(new)}"
    return None


def _guard(module: ModuleType) -> None:
    """Check the scheduler's manager once the scheduler is constructed, and watch the scheduler for
    standstills. If another plugin puts a manager there, it never passes through kvoxide's
    ``__new__``."""
    scheduler = getattr(module, "Scheduler", None)
    if scheduler is None or hasattr(scheduler.__init__, "_kvoxide"):
        return
    original = scheduler.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        manager = getattr(self, "kv_cache_manager", None)
        _check_manager(manager)
        if manager is not None:
            standstill.watch(self)
            host.decide_together(self)
        if (end_shadow := getattr(manager, "end_shadow", None)) is not None:
            _before_shutdown(self, end_shadow)

    init.__wrapped__ = original  # type: ignore[attr-defined]
    init._kvoxide = True  # type: ignore[attr-defined]
    scheduler.__init__ = init


def _before_shutdown(scheduler: Any, end: Callable[[], None]) -> None:
    """Call ``end`` before ``scheduler`` shuts down."""
    shutdown = scheduler.shutdown

    def shutdown_after_end() -> None:
        end()
        shutdown()

    scheduler.shutdown = shutdown_after_end


def _check_manager(manager: object) -> None:
    if manager is not None and (reason := foreign_manager_reason(manager)) is not None:
        fall_back([Reason(reason, "other_plugin")], keeps=_name(type(manager)))


def foreign_manager_reason(manager: object) -> str | None:
    """Return which plugin a scheduler's manager comes from, or None if it is kvoxide's or kvoxide
    chose it."""
    cls = type(manager)
    if _is_ours(cls) or vars(cls).get("__new__") is _DISPATCHER:
        return None
    if (cls.__module__, cls.__qualname__) == (MANAGER_MODULE, "KVCacheManager"):
        return f"another plugin replaced KVCacheManager.__new__ with {_name(cls.__new__)}"
    return f"another plugin put {_name(cls)} in vLLM's scheduler"


def _is_ours(cls: type) -> bool:
    return any(base.__module__.partition(".")[0] == "kvoxide" for base in cls.__mro__)


def _name(target: Any) -> str:
    target = getattr(target, "__func__", target)
    return f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', target)}"
