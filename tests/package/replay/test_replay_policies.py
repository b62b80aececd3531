"""Retention policies written as text."""

import random
from typing import Any

import pytest
from kvoxide._core import DEFAULT_PIN_MIN_DROP_SIZE, ConfigError, Policy, Simulation, Trace
from kvoxide.lab.replay.input import (
    DEFAULT_POLICY,
    check_names_differ,
    parse_policy,
    preset_groups,
)
from kvoxide.lab.replay.run import Run, SharedTrace, Workload
from kvoxide.vllm.environment.releases import RELEASES
from kvoxide.vllm.environment.settings import BASELINES

Shown = tuple[str, int | None, int | None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm", ("uncached-first", 0, None)),
        ("fifo", ("fifo", None, None)),
        ("uncached-first", ("uncached-first", None, None)),
        ("interval=0", ("uncached-first", 0, None)),
        ("interval=8192", ("uncached-first", 8192, None)),
        ("interval=auto", ("uncached-first", 32768, None)),
        ("pin", ("uncached-first", None, DEFAULT_PIN_MIN_DROP_SIZE)),
        ("pin=32", ("uncached-first", None, 32)),
        ("fifo, interval=8192, pin=2", ("fifo", 8192, 2)),
    ],
)
def test_policies_are_read_and_keep_their_spelling(text: str, expected: Shown) -> None:
    named = parse_policy(text)
    policy = named.policy
    assert named.name == text
    values = policy.recycle_order, policy.retention_interval, policy.pin_min_drop_size
    assert values == expected


def test_the_default_policy_is_what_a_policy_without_arguments_does() -> None:
    assert parse_policy(DEFAULT_POLICY).policy == Policy()
    assert parse_policy(DEFAULT_POLICY).release is None


@pytest.mark.parametrize("version", ["0.33.0", "0.32.0", "0.31.0"])
def test_a_release_changes_the_rules_of_the_manager_and_not_the_policy(version: str) -> None:
    named = parse_policy(f"vllm={version}")
    assert (named.name, named.policy) == (f"vllm={version}", Policy())
    assert named.release is not None
    assert named.release.version == version


def test_a_release_is_played_by_its_rules() -> None:
    """In 0.32.0, a state that is cached at the end of a prompt is cached there once more."""
    rng = random.Random(1)
    prompts = [(rng.randrange(6), rng.randrange(100, 6000)) for _ in range(80)]
    hits = {}
    for version in ("0.33.0", "0.32.0"):
        trace = Trace()
        for first, length in prompts:
            trace.push_prompt(range(100_000 * first, 100_000 * first + length), 40)
        workload = Workload(SharedTrace.of(trace), preset_groups("qwen3-next").specs, 4, 2000)
        run = Run(workload, parse_policy(f"vllm={version}"), 60)
        hits[version] = run.simulation(trace).run().hit_tokens
    assert hits["0.33.0"] != hits["0.32.0"]


def test_each_simple_policy_orders_evictions_in_another_way() -> None:
    """A hot prefix and long prompts that come back after a while."""
    rng = random.Random(2)
    prompts = [(0, 600) if rng.random() < 0.4 else (1 + number % 9, 900) for number in range(300)]
    hits = {}
    for name in ("vllm", *BASELINES):
        trace = Trace()
        for first, length in prompts:
            trace.push_prompt(range(100_000 * first, 100_000 * first + length), 40)
        workload = Workload(SharedTrace.of(trace), preset_groups("llama").specs, 4, 2000)
        named = parse_policy(name)
        assert (named.name, named.policy) == (name, Policy())
        result = Run(workload, named, 400).simulation(trace).run()
        assert result.evictions > 0
        hits[name] = result.hit_tokens
    assert len(set(hits.values())) >= 4, hits
    assert hits["arc"] > hits["vllm"], hits


@pytest.mark.parametrize("name", BASELINES)
def test_a_simple_policy_is_alone(name: str) -> None:
    with pytest.raises(ConfigError, match=f"joins {name} with others, but {name} is alone"):
        parse_policy(f"fifo,{name}")


@pytest.mark.parametrize(
    "rules",
    [
        {"older_rules": []},
        {**RELEASES["0.32.0"].manager_rules, "older_rules": ["none_of_them"]},
        {**RELEASES["0.32.0"].manager_rules, "num_blocks": 7},
    ],
)
def test_rules_of_a_release_are_complete_and_known(rules: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"missing field|unknown variant|unknown field"):
        Simulation(Trace(), preset_groups("llama").specs, 100, release=rules)


@pytest.mark.parametrize("text", ["adaptive,share=0.5", "share=0.5, adaptive"])
def test_a_protected_share_is_read(text: str) -> None:
    assert parse_policy(text).policy == Policy(retention="adaptive", protected_share=0.5)


@pytest.mark.parametrize("text", ["adaptive", " adaptive "])
def test_adaptive_retention_is_read(text: str) -> None:
    named = parse_policy(text)
    assert (named.name, named.policy) == (text, Policy(retention="adaptive"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "''"),
        ("lru", "'lru'"),
        ("fifo=1", "'fifo=1'"),
        ("interval", "'interval'"),
        ("interval=", "''"),
        ("interval=many", "'many'"),
        ("interval=1.5", "'1.5'"),
        ("interval=-1", "-1"),
        ("pin=auto", "'auto'"),
        ("pin=99999999999999999999999", "999"),
        ("fifo,uncached-first", "recycle_order twice"),
        ("adaptive,adaptive", "retention twice"),
        ("adaptive=1", "'adaptive=1'"),
        ("adaptive,interval=64", "'adaptive,interval=64': adaptive retention itself decides"),
        ("adaptive,fifo", "adaptive retention itself decides"),
        ("pin=2,adaptive", "adaptive retention itself decides"),
        ("pin,pin=2", "pin_min_drop_size twice"),
        ("unlimited", "every table"),
        ("clairvoyant", "--bound"),
    ],
)
def test_a_refusal_names_the_token(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_policy(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["lru", "pin=x", "fifo,fifo"])
def test_a_refusal_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigError, match=r"fifo or uncached-first, interval=TOKENS"):
        parse_policy(text)


def test_two_policies_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'pin' is given twice"):
        check_names_differ((parse_policy("pin"), parse_policy("fifo"), parse_policy("pin")))
