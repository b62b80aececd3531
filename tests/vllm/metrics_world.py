"""Code that the tests of metrics share: schedulers that report, and what they report."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.metrics import exporter, reporter  # noqa: E402
from kvoxide.vllm.metrics.report import Values, as_payload, read_payload  # noqa: E402
from vllm.v1.engine import EngineCoreOutputs  # noqa: E402
from vllm.v1.metrics.stats import SchedulerStats  # noqa: E402
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder  # noqa: E402

from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

MODEL = "served"
POOL = 20


def config_of(model: str = MODEL) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(served_model_name=model))


def new_exporter(*engines: int) -> exporter.Exporter:
    return exporter.Exporter(config_of(), list(engines or (0,)))


def travelled(stats: Any) -> Any:
    """Return statistics as another process receives them."""
    sent = MsgpackEncoder().encode(EngineCoreOutputs(scheduler_stats=stats))
    return MsgpackDecoder(EngineCoreOutputs).decode(sent).scheduler_stats


def stats_with(values: Values) -> Any:
    stats = SchedulerStats()
    stats.kvoxide = as_payload(values)
    return stats


def tokens(num: int, start: int = 0) -> list[int]:
    return list(range(start, start + num))


def world_of(*specs: Any, **changes: Any) -> SchedulerWorld:
    return SchedulerWorld(*specs, **{"num_blocks": POOL, **changes})


def all_stats(world: SchedulerWorld, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which all statistics of a world are added."""
    made: list[Any] = []
    make_stats = world.scheduler.make_stats

    def kept(*args: Any, **kwargs: Any) -> Any:
        stats = make_stats(*args, **kwargs)
        made.append(stats)
        return stats

    monkeypatch.setattr(world.scheduler, "make_stats", kept)
    return made


def report_of(world: SchedulerWorld) -> Values:
    """Return the next report of a world."""
    sender = reporter.reporter_of(world.scheduler)
    assert sender is not None
    return read_payload(sender.stats_now().kvoxide)


def gauges(values: Values, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(value for _, value in labels): number
        for (metric, labels), number in values.gauges.items()
        if metric == name
    }
