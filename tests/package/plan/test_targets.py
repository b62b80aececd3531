"""Tests of the text of targets, and of the margin of a figure."""

import pytest
from kvoxide._core import ConfigError, KVCacheGroupSpec, Serving, Simulation, Trace
from kvoxide.lab.plan.target import METRICS, Target, parse_target, parse_targets

from tests.testing.traces import prompt


@pytest.mark.parametrize(
    ("text", "name", "limit", "is_strict"),
    [
        ("ttft_p99<2s", "ttft_p99", 2.0, True),
        ("ttft_p50 <= 250 ms", "ttft_p50", 0.25, False),
        ("ttft_p90<1.5min", "ttft_p90", 90.0, True),
        ("itl_p50<20000us", "itl_p50", 0.02, True),
        ("itl_p99<1e-2s", "itl_p99", 0.01, True),
        ("hit_share>30%", "hit_share", 0.3, True),
        ("hit_share>=0.3", "hit_share", 0.3, False),
        ("throughput>5000", "throughput", 5000.0, True),
        ("throughput>5ktok/s", "throughput", 5000.0, True),
        ("throughput>=5000tokens/s", "throughput", 5000.0, False),
    ],
)
def test_targets_are_read(text: str, name: str, limit: float, is_strict: bool) -> None:
    target = parse_target(text)
    assert (target.text, target.name, target.is_strict) == (text, name, is_strict)
    assert target.limit == pytest.approx(limit)


def test_the_limit_itself_misses_a_strict_target_alone() -> None:
    assert not parse_target("ttft_p99<2s").is_met(2.0)
    assert parse_target("ttft_p99<=2s").is_met(2.0)
    assert parse_target("ttft_p99<2s").is_met(1.999)
    assert not parse_target("hit_share>50%").is_met(0.5)
    assert parse_target("hit_share>=50%").is_met(0.5)
    assert not parse_target("hit_share>50%").is_met(None)


def test_margins_are_shares_of_the_limit_on_its_right_side() -> None:
    assert parse_target("ttft_p99<2s").margin(0.5) == 0.75
    assert parse_target("ttft_p99<2s").margin(3.0) == -0.5
    assert parse_target("throughput>100").margin(150.0) == 0.5
    assert parse_target("throughput>100").margin(25.0) == -0.75
    assert parse_target("throughput>100").margin(None) is None


def test_each_metric_is_the_figure_of_its_name() -> None:
    trace = Trace()
    for number in range(20):
        trace.push_prompt(list(prompt(number % 5, 200 + 10 * number)), number)
    serving = Serving(instances=2)
    groups = [KVCacheGroupSpec("full_attention", 16)]
    result = Simulation(trace, groups, 200, concurrency=4, serving=serving).run()
    assert result.serving is not None
    total = result.serving.total
    figures = [metric.of(result) for metric in METRICS.values()]
    assert total.time_to_first_token is not None
    assert total.time_between_tokens is not None
    assert figures == [
        *total.time_to_first_token,
        *total.time_between_tokens,
        result.hit_tokens / result.prompt_tokens,
        total.generated_tokens / total.makespan_seconds,
    ]


def test_without_time_or_tokens_there_is_no_figure() -> None:
    trace = Trace()
    trace.push_prompt([1], 0)
    groups = [KVCacheGroupSpec("full_attention", 16)]
    untimed = Simulation(trace, groups, 200).run()
    assert [metric.of(untimed) for metric in METRICS.values()] == [None] * 6 + [0.0, None]
    single = Simulation(trace, groups, 200, serving=Serving()).run()
    assert METRICS["itl_p99"].of(single) is None


def test_a_figure_has_one_target() -> None:
    targets = parse_targets(["ttft_p99<2s", "ttft_p50<1s"])
    assert all(isinstance(target, Target) for target in targets)
    with pytest.raises(ConfigError, match="ttft_p99 has two targets"):
        parse_targets(["ttft_p99<2s", "ttft_p99<1s"])
