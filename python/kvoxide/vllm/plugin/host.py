"""Decides which host tier and which connector vLLM gets, and logs one line for each.

As for the manager, vLLM's classes stay the objects that other modules have imported, and their
``__new__`` decides for each construction. Classes that derive from them are constructed as usual.
One variable switches both, because vLLM's connector is private and changes with each release. The
shadow has both: kvoxide's connector over kvoxide's tier, with the same calls as vLLM's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, NoReturn

from kvoxide.vllm.environment import (
    Settings,
    SettingsError,
    UnsupportedError,
    compiled_module_problem,
    connector_reasons,
    host_reasons,
    logger,
    settings,
)
from kvoxide.vllm.plugin.decision import constructed


class _FallBack(Exception):
    """Carries the reasons why vLLM's own class is constructed. It is empty if vLLM's constructor
    will raise."""


@dataclass(frozen=True)
class ReplacedClass:
    """A class of vLLM's that kvoxide may replace.

    ``construct`` takes the arguments of vLLM's class. It returns kvoxide's instance and the line to
    log about it. If ``reasons`` speak against it, the logged line says what serves instead
    (``stays``). With ``KVOXIDE_HOST=require``, the error says what kvoxide cannot do (``aim``).
    ``shadow`` constructs the instance for ``KVOXIDE_HOST=shadow``, if there is one. It logs for
    itself.
    """

    module: str
    name: str
    aim: str
    stays: str
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
        """Return the instance for ``stock(*args, **kwargs)``. If ``KVOXIDE_HOST`` is ``require``,
        raise :class:`UnsupportedError` instead of returning vLLM's own."""
        wanted = settings.current()
        is_shadow = wanted.host_mode == "shadow"
        if "off" in (wanted.host_mode, wanted.mode) or (is_shadow and self.shadow is None):
            return object.__new__(stock)
        cause = None
        try:
            if not (reasons := self._reasons(wanted)):
                if is_shadow and self.shadow is not None:
                    return self.shadow()
                made, line = self.construct(args, kwargs)
                if not settings.are_overridden():  # a shadow's tier does not serve
                    logger.info("%s", line)
                return made
        except (SettingsError, UnsupportedError):
            raise
        except _FallBack as error:
            reasons = list(error.args)
        except Exception as error:
            reasons, cause = [f"unexpected {type(error).__name__}: {error}"], error
        if reasons:
            self._fall_back(reasons, cause)
        return object.__new__(stock)

    def _reasons(self, wanted: Settings) -> list[str]:
        if problem := compiled_module_problem():
            return [problem]
        if wanted.host_mode == "shadow":
            return host_reasons() or self.reasons()
        if wanted.mode == "shadow":
            return ["with KVOXIDE=shadow, vLLM's own classes decide"]
        return self.reasons()

    def _fall_back(self, reasons: Sequence[str], cause: Exception | None) -> None:
        text = "; ".join(reasons)
        if settings.current().host_mode == "require":
            raise UnsupportedError(
                f"{settings.HOST_VARIABLE}=require, but kvoxide cannot {self.aim}: {text}"
            ) from cause
        logger.warning("kvoxide stands aside, %s: %s", self.stays, text)


def _construct_tier(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
    from kvoxide.vllm import offload

    try:
        arguments = offload.bound_arguments(args, kwargs)
    except TypeError:
        raise _FallBack from None  # these are not vLLM's arguments; its own constructor says so
    if reasons := offload.reasons_against(arguments):
        raise _FallBack(*reasons)
    return constructed(offload.native_class(), args, kwargs), _describe_tier(arguments)


def _describe_tier(arguments: Mapping[str, Any]) -> str:
    from kvoxide import __version__

    line = (
        f"kvoxide {__version__} manages the host tier: {arguments['num_chunks']} chunks, "
        f"{arguments['cache_policy']}"
    )
    if arguments["store_threshold"] >= 2:
        line += f", stores what was offered {arguments['store_threshold']} times"
    return line


def _construct_connector(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
    from kvoxide import __version__
    from kvoxide.vllm import offload

    made = constructed(offload.connector_class(), args, kwargs)
    is_ours = type(made.manager) is offload.native_class()
    tier = "its host tier" if is_ours else type(made.manager).__qualname__
    return made, f"kvoxide {__version__} speeds up the offloading connector over {tier}"


def _construct_simple(args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    raise _FallBack(
        "kvoxide serves OffloadingConnector, which --kv-offloading-size gives without "
        "VLLM_USE_SIMPLE_KV_OFFLOAD"
    )


def _shadow_connector() -> Any:
    from kvoxide.vllm.shadow import connector_shadow_class

    return object.__new__(connector_shadow_class())  # Python calls its constructor next


REPLACED_CLASSES: Final = (
    ReplacedClass(
        module="vllm.v1.kv_offload.cpu.manager",
        name="CPUOffloadingManager",
        aim="manage the host tier",
        stays="vLLM's own manager manages the host tier",
        reasons=host_reasons,
        construct=_construct_tier,
    ),
    ReplacedClass(
        module="vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler",
        name="OffloadingConnectorScheduler",
        aim="speed up the offloading connector",
        stays="vLLM's own methods serve the offloading connector",
        reasons=connector_reasons,
        construct=_construct_connector,
        shadow=_shadow_connector,
    ),
    ReplacedClass(
        module="vllm.v1.simple_kv_offload.manager",
        name="SimpleCPUOffloadScheduler",
        aim="serve SimpleCPUOffloadConnector",
        stays="vLLM's own SimpleCPUOffloadConnector serves the host tier",
        reasons=list,
        construct=_construct_simple,
    ),
)
