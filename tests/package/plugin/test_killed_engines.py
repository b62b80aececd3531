"""Tests of the line that a server logs for engines in shadow mode that were killed."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kvoxide.vllm.metrics import killed_engines


class Manager:
    """Ends its processes, as vLLM's ``CoreEngineProcManager`` does."""

    def __init__(self, *exit_codes: int | None) -> None:
        self.processes = [SimpleNamespace(exitcode=code) for code in exit_codes]
        self.timeouts: list[float | None] = []

    def shutdown(self, timeout: float | None = None) -> None:
        self.timeouts.append(timeout)


@pytest.fixture
def manager_class() -> Any:
    cls = type("CoreEngineProcManager", (Manager,), dict(vars(Manager)))
    for _ in range(2):  # a second time changes nothing
        killed_engines.take_over(SimpleNamespace(CoreEngineProcManager=cls))  # type: ignore[arg-type]
    return cls


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    logged: list[Any] = []
    monkeypatch.setattr(
        killed_engines, "log_shadow_agreed_until_killed", lambda *values: logged.append(values)
    )
    monkeypatch.setattr(killed_engines, "log_metrics_off", lambda *values: logged.append(values))
    return logged


def export(monkeypatch: pytest.MonkeyPatch, *samples: tuple[str, str, float]) -> None:
    """Let vLLM's registry have these values of metrics: name, part and value."""
    found = [
        SimpleNamespace(name=name, labels={"part": part}, value=value)
        for name, part, value in samples
    ]
    family = SimpleNamespace(samples=[*found, SimpleNamespace(name="vllm:other", labels={})])
    module: Any = ModuleType("vllm.v1.metrics.prometheus")
    module.get_prometheus_registry = lambda: SimpleNamespace(collect=lambda: [family])
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.v1.metrics.prometheus", module)


CALLS, DIFFERENCES = "kvoxide_shadow_calls_total", "kvoxide_shadow_differences_total"


@pytest.mark.parametrize("exit_code", [None, -9, -15])
def test_the_calls_of_all_killed_engines_are_logged_once(
    exit_code: int | None, manager_class: Any, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(
        monkeypatch,
        (CALLS, "manager", 40.0),
        (CALLS, "manager", 2.0),
        (DIFFERENCES, "manager", 0.0),
        (CALLS, "host", 7.0),
        (DIFFERENCES, "host", 1.0),
    )
    manager = manager_class(exit_code, 0)
    manager.shutdown(timeout=3.0)
    manager.shutdown()
    assert manager.timeouts == [3.0, None]
    assert logged == [("the KV cache", 42)]


def test_engines_that_ended_themselves_have_logged(
    manager_class: Any, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, (CALLS, "manager", 40.0))
    manager_class(0, 1).shutdown()
    assert logged == []


@pytest.mark.parametrize("samples", [(), ((CALLS, "manager", 0.0),)])
def test_without_calls_there_is_no_line(
    samples: Any, manager_class: Any, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, *samples)
    manager_class(-9).shutdown()
    assert logged == []


def test_an_error_never_reaches_the_server(
    manager_class: Any, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, (CALLS, "manager", 40.0))
    manager = manager_class(-9)
    manager.processes = None
    manager.shutdown()
    assert [part for part, _ in logged] == ["the end of shadow mode"]
