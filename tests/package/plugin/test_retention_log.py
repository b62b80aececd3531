"""Tests of the server's log about adaptive retention: each minute, and after an hour in which it
hit less."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kvoxide.vllm.adapter import retention_log


@dataclass
class Report:
    """A report of an engine: prompt tokens, hit tokens, and the default's estimated hits."""

    prompt_tokens: int
    hit_tokens: int
    default_hit_tokens: int
    is_default_hit_a_limit: bool = False
    hit_answer_tokens: int = 0
    evicted_full_blocks: int = 0
    evicted_tail_blocks: int = 0
    scoring_function: str = "recency"
    sampled_blocks: int = 0
    sampled_kept: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("recency", "frequency", "hazard"), 0)
    )


class Engine:
    """Hits a share of a million prompt tokens each minute, and the default another share. A third
    share is loaded from CPU memory."""

    is_replaced = False

    def __init__(
        self, hit: float, default: float, loaded: float = 0.0, *, is_limit: bool = False
    ) -> None:
        self.hit, self.default, self.loaded, self.is_limit = hit, default, loaded, is_limit
        self.minutes = 0

    def retention_report(self) -> Report:
        tokens = self.minutes * 1_000_000
        hits, default = round(self.hit * tokens), round(self.default * tokens)
        self.minutes += 1
        return Report(tokens, hits, default, self.is_limit, sampled_blocks=self.minutes)

    def outcome_report(self) -> Any:
        """Return the outcomes at the time of the last retention report."""
        loaded = round(self.loaded * (self.minutes - 1) * 1_000_000)
        return SimpleNamespace(outcomes={"hit_host": loaded})


class Log:
    """Replaces the logger. vLLM, once imported, keeps the logger's messages to itself."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def info(self, form: str, *values: str) -> None:
        self.lines.append(form % values)

    def warning(self, form: str, *values: str) -> None:
        self.warnings.append(form % values)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(retention_log, "logger", log)
    return log


def tell(engine: Engine, num_minutes: int) -> None:
    minutes = retention_log.MinuteLog(cast("Any", engine))
    assert minutes._logged is not None
    began = minutes._logged.time
    for minute in range(1, num_minutes + 1):
        minutes.end_minute(began + 60.5 * minute)


@pytest.mark.parametrize("num_minutes", [59, 60, 119, 120])
def test_an_hour_in_which_the_default_would_have_hit_more_is_told_once(
    num_minutes: int, log: Log
) -> None:
    tell(Engine(hit=0.2, default=0.3), num_minutes)
    assert (len(log.lines), len(log.warnings)) == (num_minutes, num_minutes // 60)
    assert all("hit_rate=0.200 default_hit_rate=0.300" in line for line in log.warnings)


@pytest.mark.parametrize(
    "engine",
    [
        Engine(0.2, 0.22),
        Engine(0.3, 0.2),
        Engine(0.2, 0.3, is_limit=True),
        Engine(0.2, 0.3, loaded=0.08),
    ],
)
def test_what_is_within_the_error_or_a_limit_is_no_warning(engine: Engine, log: Log) -> None:
    tell(engine, 180)
    assert (len(log.lines), log.warnings) == (180, [])


def test_a_loss_that_loads_do_not_make_up_for_is_told(log: Log) -> None:
    tell(Engine(hit=0.2, default=0.3, loaded=0.05), 60)
    (line,) = log.warnings
    assert "hit_rate=0.250 default_hit_rate=0.300" in line


@pytest.mark.parametrize(
    ("is_limit", "sampled", "expected"),
    [
        (False, 9, "default_hit_rate=0.412 default_hit_rate_is_limit=false sampled_blocks=9"),
        (True, 9, "default_hit_rate=0.412 default_hit_rate_is_limit=true sampled_blocks=9"),
        (False, 0, "default_hit_rate=unknown default_hit_rate_is_limit=false sampled_blocks=0"),
    ],
)
def test_the_line_has_the_estimate_for_the_default(
    is_limit: bool, sampled: int, expected: str, log: Log
) -> None:
    before, after = Report(0, 0, 0), Report(1000, 300, 412, is_limit, sampled_blocks=sampled)
    retention_log._log_minute(cast("Any", before), cast("Any", after), 60.0)
    (line,) = log.lines
    assert line.startswith("kvoxide: adaptive retention: seconds=60 prompt_tokens=1000 hit_rate=")
    assert f" {expected} " in line
    assert line.endswith(f" hazard_kept_rate={'0.000' if sampled else 'unknown'}")
