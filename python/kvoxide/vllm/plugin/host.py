"""Decides which host tier and which connector vLLM gets, and logs one line for each.

As for the manager, vLLM's classes stay the objects that other modules have imported, and their
``__new__`` decides for each construction. Classes that derive from them are constructed as usual.
One variable, or one entry of the connector's ``kv_connector_extra_config``, switches both, because
vLLM's connector is private and changes with each release. The shadow has both: kvoxide's connector
over kvoxide's tier, with the same calls as vLLM's.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, NoReturn

from kvoxide.vllm.environment import (
    HostMode,
    Reason,
    Settings,
    SettingsError,
    UnsupportedError,
    compiled_module_problem,
    connector_reasons,
    count_fallback,
    host_mode,
    host_reasons,
    kind_of,
    log_active,
    log_not_active,
    primary_tier_reasons,
    settings,
)
from kvoxide.vllm.plugin.decision import FallBack, constructed, constructing_object

TIERING_MODULE: Final = "vllm.v1.kv_offload.tiering.spec"


@dataclass(frozen=True)
class ReplacedClass:
    """A class of vLLM's that kvoxide may replace.

    ``part`` is what messages call it, and ``stock`` what they call vLLM's own. ``construct`` takes
    the arguments of vLLM's class. It returns kvoxide's instance and its description for the log.
    ``shadow`` constructs the instance for the mode ``shadow``, if there is one. It logs for
    itself.
    """

    module: str
    name: str
    part: str
    stock: str
    reasons: Callable[[], list[str]]
    construct: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, str]]
    shadow: Callable[[], Any] | None = None

    def take_over(self, module: ModuleType) -> None:
        """Decide from now on what a call of the class constructs."""
        stock = getattr(module, self.name, None)
        if stock is not None and stock.__module__ == self.module and "__new__" not in vars(stock):
            stock.__new__ = staticmethod(self._dispatcher(stock))

    def _dispatcher(self, stock: type) -> Callable[..., Any]:
        def dispatch(cls: type, *args: Any, **kwargs: Any) -> Any:
            return self._construct(cls, args, kwargs) if cls is stock else object.__new__(cls)

        return dispatch

    def _construct(self, stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the instance for ``stock(*args, **kwargs)``. If the mode is ``require``, raise
        :class:`UnsupportedError` instead of returning vLLM's own."""
        wanted = settings.current()
        if wanted.mode == "off":
            return object.__new__(stock)
        host = host_mode(_extra_config(args, kwargs))
        is_shadow = host.mode == "shadow"
        if host.mode == "off" or (is_shadow and self.shadow is None):
            return object.__new__(stock)
        cause = None
        try:
            if not (reasons := self._reasons(wanted, host)):
                if is_shadow and self.shadow is not None:
                    return self.shadow()
                made, details = self.construct(args, kwargs)
                if not settings.are_overridden():  # a shadow's tier does not serve
                    log_active(self.part, details)
                return made
        except (SettingsError, UnsupportedError):
            raise
        except FallBack as error:
            reasons = error.reasons
        except Exception as error:
            reasons = [f"unexpected {type(error).__name__}: {error}; please report it"]
            cause = error
        if reasons:
            self._fall_back(reasons, host, cause)
        return object.__new__(stock)

    def _reasons(self, wanted: Settings, host: HostMode) -> list[str]:
        if problem := compiled_module_problem():
            return [problem]
        if host.mode == "shadow":
            return host_reasons() or self.reasons()
        if wanted.mode == "shadow":
            return [Reason("KVOXIDE=shadow uses vLLM's own code", "settings")]
        return self.reasons()

    def _fall_back(self, reasons: Sequence[str], host: HostMode, cause: Exception | None) -> None:
        text = "; ".join(reasons)
        if host.mode == "require":
            raise UnsupportedError(
                f"kvoxide cannot provide {self.part}: {text}. {host.source}=require forbids "
                f"{self.stock}; set {host.source}=auto to use it"
            ) from cause
        count_fallback(kind_of(reasons))
        log_not_active(self.part, self.stock, text)


def _extra_config(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
    """Return the ``kv_connector_extra_config`` of the connector that is constructed. The arguments
    of vLLM's class have it, or the object whose method constructs it."""
    for owner in (*args[:1], *kwargs.values(), constructing_object()):
        for name in ("_kv_transfer_config", "kv_transfer_config"):
            owner = getattr(owner, name, owner)
        for name in ("extra_config", "kv_connector_extra_config"):
            extra = getattr(owner, name, None)
            if isinstance(extra, Mapping):
                return extra
    return {}


def _construct_tier(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
    from kvoxide.vllm import offload

    return _construct_over_tier(offload.native_class(), args, kwargs)


def _construct_primary_tier(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
    from kvoxide.vllm import offload

    made, details = _construct_over_tier(offload.primary_class(), args, kwargs)
    return made, f"{details}; it is the primary tier of TieringOffloadingManager"


def _construct_over_tier(
    native: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, str]:
    from kvoxide.vllm import offload

    try:
        arguments = offload.bound_arguments(native.stock, args, kwargs)
    except TypeError:
        raise FallBack from None  # these are not vLLM's arguments; its own constructor says so
    if reasons := offload.reasons_against(arguments):
        raise FallBack([Reason(reason, "unsupported_connector") for reason in reasons])
    return constructed(native, args, kwargs), _describe_tier(arguments)


def _describe_tier(arguments: Mapping[str, Any]) -> str:
    details = f"{arguments['num_chunks']} chunks; policy {arguments['cache_policy']}"
    if arguments["store_threshold"] >= 2:
        details += f"; a chunk is stored after {arguments['store_threshold']} offers"
    return details


def _construct_connector(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
    from kvoxide.vllm import offload

    made = constructed(offload.connector_class(), args, kwargs)
    is_ours = type(made.manager) is offload.native_class()
    manager = "kvoxide's CPU offload cache" if is_ours else type(made.manager).__qualname__
    return made, f"it uses {manager}"


def _construct_simple(args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    reason = (
        "kvoxide supports OffloadingConnector alone; unset VLLM_USE_SIMPLE_KV_OFFLOAD to use it"
    )
    raise FallBack([Reason(reason, "unsupported_connector")])


def decide_together(scheduler: Any) -> None:
    """Let GPU and CPU memory of a new scheduler decide together, if a setting asks for it."""
    if compiled_module_problem() is None and settings.parse_host_policy(os.environ) != "vllm":
        from kvoxide.vllm import offload

        offload.decide_together(scheduler)


def guard_other_tiers(module: ModuleType) -> None:
    """Refuse other tiers, where a setting forbids them, before vLLM creates files for them."""
    spec = getattr(module, "TieringOffloadingSpec", None)
    if spec is None or "__new__" in vars(spec):
        return

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        if compiled_module_problem() is None and settings.parse_host_policy(os.environ) != "vllm":
            from kvoxide.vllm import offload

            offload.refuse_other_tiers(_extra_config(args, kwargs))
        return object.__new__(cls)

    spec.__new__ = staticmethod(new)


def _shadow_connector() -> Any:
    from kvoxide.vllm.shadow import connector_shadow_class

    return object.__new__(connector_shadow_class())  # Python calls its constructor next


REPLACED_CLASSES: Final = (
    ReplacedClass(
        module="vllm.v1.kv_offload.cpu.manager",
        name="CPUOffloadingManager",
        part="the CPU offload cache",
        stock="vLLM's own manager",
        reasons=host_reasons,
        construct=_construct_tier,
    ),
    ReplacedClass(
        module="vllm.v1.kv_offload.tiering.manager",
        name="CPUPrimaryTierOffloadingManager",
        part="the CPU offload cache",
        stock="vLLM's own manager",
        reasons=primary_tier_reasons,
        construct=_construct_primary_tier,
    ),
    ReplacedClass(
        module="vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler",
        name="OffloadingConnectorScheduler",
        part="the offloading connector",
        stock="vLLM's own code",
        reasons=connector_reasons,
        construct=_construct_connector,
        shadow=_shadow_connector,
    ),
    ReplacedClass(
        module="vllm.v1.simple_kv_offload.manager",
        name="SimpleCPUOffloadScheduler",
        part="the CPU offload cache",
        stock="vLLM's own SimpleCPUOffloadConnector",
        reasons=list,
        construct=_construct_simple,
    ),
)
