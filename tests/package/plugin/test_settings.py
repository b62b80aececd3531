"""Tests of settings in environment variables, without vLLM."""

import pytest
from kvoxide import DEFAULT_PIN_MIN_DROP_SIZE
from kvoxide.vllm.environment import Settings, SettingsError, settings
from kvoxide.vllm.shadow.recorder import DEFAULT_MAX_CALLS, max_calls


def parse(**environ: str) -> Settings:
    return Settings.from_environ(environ)


def test_nothing_set_is_the_releases_own_behaviour() -> None:
    assert parse() == Settings("auto", retention="standard")
    assert not parse().changes_policy


@pytest.mark.parametrize("mode", settings.MODES)
def test_modes(mode: str) -> None:
    assert parse(KVOXIDE=mode).mode == mode
    assert parse(KVOXIDE=f" {mode.upper()} ").mode == mode


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({}, "auto"),
        ({"KVOXIDE": "require"}, "auto"),
        ({"KVOXIDE": "shadow"}, "shadow"),
        ({"KVOXIDE": "shadow", "KVOXIDE_HOST": "off"}, "off"),
        *(({"KVOXIDE_HOST": mode.upper()}, mode) for mode in settings.MODES),
    ],
)
def test_modes_of_the_host_tier(environ: dict[str, str], mode: str) -> None:
    assert parse(**environ).host_mode == mode


@pytest.mark.parametrize(
    ("value", "interval"), [("", None), ("0", 0), ("8192", 8192), ("auto", 32768), ("AUTO", 32768)]
)
def test_retention_interval(value: str, interval: int | None) -> None:
    assert parse(VLLM_PREFIX_CACHE_RETENTION_INTERVAL=value).retention_interval == interval


@pytest.mark.parametrize(
    ("value", "size"),
    [("1", DEFAULT_PIN_MIN_DROP_SIZE), ("True", DEFAULT_PIN_MIN_DROP_SIZE), ("0", None)],
)
def test_pinning(value: str, size: int | None) -> None:
    assert parse(VLLM_PIN_SWA_TOKENS=value).pin_min_drop_size == size


@pytest.mark.parametrize(
    ("value", "retention"),
    [
        ("", "standard"),
        ("standard", "standard"),
        ("adaptive", "adaptive"),
        (" Adaptive ", "adaptive"),
    ],
)
def test_retention(value: str, retention: str) -> None:
    wanted = parse(KVOXIDE_POLICY=value)
    assert wanted.retention == retention
    assert wanted.changes_policy == (retention == "adaptive")


@pytest.mark.parametrize(
    ("value", "share"),
    [("adaptive", None), ("adaptive,share=0.5", 0.5), (" Adaptive , Share = 0 ", 0.0)],
)
def test_protected_share(value: str, share: float | None) -> None:
    assert parse(KVOXIDE_POLICY=value) == Settings(retention="adaptive", protected_share=share)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("VLLM_PIN_SWA_TOKENS", "1"), ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "0")],
)
def test_adaptive_retention_is_all_there_is(variable: str, value: str) -> None:
    assert parse(KVOXIDE_POLICY="standard", **{variable: value}).thins_out
    with pytest.raises(SettingsError) as caught:
        parse(KVOXIDE_POLICY="Adaptive", **{variable: value})
    assert caught.value.variable == "KVOXIDE_POLICY"
    assert "KVOXIDE_POLICY='Adaptive' is not valid; allowed: adaptive without" in str(caught.value)
    assert f"{variable}" in str(caught.value)


def test_adaptive_retention_beside_variables_that_ask_for_nothing() -> None:
    off = {"VLLM_PIN_SWA_TOKENS": "0", "VLLM_PREFIX_CACHE_RETENTION_INTERVAL": ""}
    wanted = parse(KVOXIDE_POLICY="adaptive", VLLM_PIN_MIN_DROP_SIZE="4", **off)
    assert wanted == Settings(retention="adaptive")


@pytest.mark.parametrize(("value", "every"), [("", 0), ("0", 0), ("1", 1), (" 1000 ", 1000)])
def test_checks(value: str, every: int) -> None:
    assert parse(KVOXIDE_CHECK=value).check_every == every
    assert not parse(KVOXIDE_CHECK=value).changes_policy


@pytest.mark.parametrize(
    ("value", "highest"),
    [("", 100), ("50", 50), (" 80 ", 80), ("100", 100), ("off", 0), ("OFF", 0), ("0", 0)],
)
def test_the_highest_priority_of_requests(value: str, highest: int) -> None:
    assert parse(KVOXIDE_PRIORITY=value).max_priority == highest
    assert not parse(KVOXIDE_PRIORITY=value).changes_policy


@pytest.mark.parametrize(
    ("value", "policy"), [("", "vllm"), ("vllm", "vllm"), (" Adaptive ", "adaptive")]
)
def test_the_policy_of_cpu_memory(value: str, policy: str) -> None:
    assert parse(KVOXIDE_HOST_POLICY=value).host_policy == policy
    assert not parse(KVOXIDE_HOST_POLICY=value).changes_policy


def test_min_drop_size_counts_only_with_pinning() -> None:
    assert parse(VLLM_PIN_MIN_DROP_SIZE="4").pin_min_drop_size is None
    assert parse(VLLM_PIN_SWA_TOKENS="1", VLLM_PIN_MIN_DROP_SIZE="4").pin_min_drop_size == 4


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("KVOXIDE", "yes", "auto, require, off, shadow"),
        ("KVOXIDE_POLICY", "lru", "allowed: standard, adaptive"),
        (
            "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
            "-16",
            "a multiple of the scheduler's block size in tokens",
        ),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "1e4", "auto (32768)"),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "none", "unset (vLLM's own configuration)"),
        ("VLLM_PIN_SWA_TOKENS", "2", "1, true, 0, false"),
        ("VLLM_PIN_MIN_DROP_SIZE", "0", "a number of blocks, 1 or more"),
        ("KVOXIDE_CHECK", "-1", "0 (no check), 1 (after every call)"),
        ("KVOXIDE_CHECK", "on", "a number n of calls (after every n-th)"),
        ("KVOXIDE_CHECK", "9223372036854775808", "a number n of calls"),
        ("KVOXIDE_HOST_POLICY", "lru", "allowed: vllm, adaptive"),
        ("KVOXIDE_PRIORITY", "49", "from 50 to 100"),
        ("KVOXIDE_PRIORITY", "101", "from 50 to 100"),
        ("KVOXIDE_PRIORITY", "high", "off (ignore kvoxide_priority), or the highest priority"),
        ("VLLM_PIN_MIN_DROP_SIZE", "²", "a number of blocks, 1 or more"),
    ],
)
def test_wrong_values_say_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(**{variable: value})
    assert caught.value.variable == variable
    assert f"{variable}={value!r} is not valid" in str(caught.value)
    assert allowed in str(caught.value)


def test_settings_can_be_given_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", "require")
    assert settings.current().mode == "require"
    wanted = Settings("shadow", retention_interval=0)
    with settings.using(wanted):
        assert settings.current() == wanted
    assert settings.current().mode == "require"


@pytest.mark.parametrize(
    ("value", "calls"),
    [
        ("2000", 2000),
        ("", DEFAULT_MAX_CALLS),
        ("0", DEFAULT_MAX_CALLS),
        ("-1", DEFAULT_MAX_CALLS),
        ("many", DEFAULT_MAX_CALLS),
        ("²", DEFAULT_MAX_CALLS),
        ("9" * 5000, DEFAULT_MAX_CALLS),
    ],
)
def test_what_is_no_number_of_calls_is_the_default(
    value: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_SHADOW_CALLS", value)
    assert max_calls() == calls
