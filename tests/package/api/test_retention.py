"""Tests of the priority and the time to live that requests ask for."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from kvoxide import ConfigError, KVCacheManager, Policy, RequestError, Retention

from tests.testing.small import (
    admit,
    decode,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


def make_adaptive(*groups: Any, share: float | None = None, **options: Any) -> KVCacheManager:
    policy = Policy(retention="adaptive", protected_share=share)
    return make_manager(*groups, policy=policy, **options)


def own(prompt: int, num_tokens: int = 16) -> range:
    return range(prompt * 10_000, prompt * 10_000 + num_tokens)


def fill(manager: KVCacheManager, num_prompts: int = 30) -> None:
    """Serve prompts that do not come back."""
    for i in range(100, 100 + num_prompts):
        serve(manager, f"fill {i}", own(i, 33))


def is_kept(manager: KVCacheManager, prompt: int) -> bool:
    return num_hit_tokens(manager, [*own(prompt), 7]) == 16


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.seconds


@pytest.mark.parametrize(("priority", "kept"), [(0, False), (50, False), (51, True), (100, True)])
def test_a_high_priority_outlasts_traffic(priority: int, kept: bool) -> None:
    manager = make_adaptive()
    serve(manager, "a", own(1), retention=Retention(priority=priority))
    fill(manager)
    assert is_kept(manager, 1) == kept


def test_a_low_priority_goes_before_what_is_older() -> None:
    manager = make_adaptive(num_blocks=10)
    serve(manager, "old", own(1))
    serve(manager, "low", own(2), retention=Retention(priority=0))
    serve(manager, "new", own(3))
    assert is_kept(manager, 1)
    assert not is_kept(manager, 2)


def test_time_to_live() -> None:
    clock = Clock()
    manager = make_adaptive(clock=clock)
    serve(manager, "a", own(1), retention=Retention(priority=80, ttl=600.0))
    fill(manager)
    clock.seconds += 599.0
    fill(manager)
    assert is_kept(manager, 1)
    clock.seconds += 1.0
    fill(manager)
    assert not is_kept(manager, 1)


def test_a_use_by_whoever_claims_starts_the_time_anew() -> None:
    clock = Clock()
    manager = make_adaptive(clock=clock)
    for name in ("a", "b"):
        serve(manager, name, [*own(1), 7], retention=Retention(priority=80, ttl=600.0))
        clock.seconds += 400.0
    fill(manager)
    assert is_kept(manager, 1)
    serve(manager, "c", [*own(1), 7])
    clock.seconds += 200.0
    fill(manager)
    assert not is_kept(manager, 1)


def test_the_machines_clock_is_the_default() -> None:
    manager = make_adaptive()
    serve(manager, "a", own(1), retention=Retention(priority=80, ttl=0.05))
    fill(manager, 1)
    time.sleep(0.06)
    fill(manager)
    assert not is_kept(manager, 1)


def test_the_clock_is_not_asked_where_no_time_ends() -> None:
    clock = Clock()
    manager = make_adaptive(clock=clock)
    serve(manager, "a", own(1), retention=Retention(priority=80))
    fill(manager)
    assert clock.asked == 0


def returns(value: Any) -> Callable[[], Any]:
    return lambda: value


def fails() -> float:
    raise OSError("no clock")


@pytest.mark.parametrize(
    ("clock", "error", "says"),
    [
        (returns("noon"), TypeError, "must be real number"),
        (returns(float("nan")), RequestError, "clock returned NaN; it must return seconds"),
        (returns(-1.0), RequestError, "clock returned -1"),
        (fails, OSError, "no clock"),
    ],
)
def test_a_broken_clock(clock: Callable[[], Any], error: type[Exception], says: str) -> None:
    manager = make_adaptive(clock=clock)
    request = make_request(manager, "a", own(1), retention=Retention(priority=80, ttl=1))
    before = manager.state_digest()
    with pytest.raises(error, match=says):
        manager.allocate_slots(request, 16)
    assert manager.state_digest() == before
    serve(manager, "b", own(2))


def test_only_the_share_is_protected() -> None:
    manager = make_adaptive(share=0.1)
    for prompt in (1, 2):
        serve(manager, f"{prompt}", own(prompt), retention=Retention(priority=100))
    fill(manager)
    assert [is_kept(manager, prompt) for prompt in (1, 2)] == [False, True]
    assert manager.policy.protected_share == 0.1


def test_window_blocks_have_the_priority_too() -> None:
    manager = make_adaptive(full(), window(), num_blocks=200, share=0.5)
    request = make_request(manager, "a", [*own(1), 7], retention=Retention(priority=80))
    admit(manager, request, chunk=8)
    decode(manager, request, range(5))
    manager.free(request)
    fill(manager)
    assert is_kept(manager, 1)


def test_without_adaptive_retention_it_is_refused() -> None:
    manager = make_manager()
    request = make_request(manager, "a", own(1), retention=Retention(priority=80))
    assert manager.get_computed_blocks(request)[1] == 0
    with pytest.raises(RequestError, match="needs adaptive retention"):
        manager.allocate_slots(request, 16)
    assert manager.usage == 0.0


def test_values() -> None:
    retention = Retention(priority=80, ttl=600)
    assert (retention.priority, retention.ttl) == (80, 600.0)
    assert repr(retention) == "Retention(priority=80, ttl=600.0)"
    assert repr(Retention(priority=0)) == "Retention(priority=0)"
    assert retention == Retention(priority=80, ttl=600.0)
    assert retention != Retention(priority=80)
    request = make_request(make_manager(), "a", own(1), retention=retention)
    assert request.retention == retention
    assert make_request(make_manager(), "a", own(1)).retention is None


def test_the_share_is_part_of_the_policy() -> None:
    half = Policy(retention="adaptive", protected_share=0.5)
    assert repr(half) == "Policy(retention='adaptive', protected_share=0.5)"
    assert half != Policy(retention="adaptive")
    assert Policy(retention="adaptive", protected_share=0.125) == Policy(retention="adaptive")
    with pytest.raises(ConfigError, match="protected_share needs adaptive retention"):
        Policy(protected_share=0.5)
