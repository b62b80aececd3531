"""Tests which manager vLLM's class constructs, in a process where vLLM loaded its plugins."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import vllm
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide import __version__  # noqa: E402
from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.environment import SettingsError, UnsupportedError, recognise, releases  # noqa: E402
from kvoxide.vllm.plugin import entry_point as plugin  # noqa: E402
from kvoxide.vllm.shadow.shadow import ShadowManager  # noqa: E402
from vllm.v1.core import kv_cache_manager  # noqa: E402

from tests.testing.small_world import config, full, hisparse, make_manager, window  # noqa: E402
from tests.testing.vllm_releases import NEWEST  # noqa: E402

Stock = kv_cache_manager.KVCacheManager


def test_auto_gives_kvoxides_manager_and_says_so(lines: list[str]) -> None:
    manager = make_manager()
    assert type(manager) is native_class()
    assert isinstance(manager, Stock)
    assert lines == [
        f"kvoxide: active for the KV cache, version {__version__}: 2 groups (1 full_attention, "
        "1 sliding_window); 100 blocks; policy of vLLM "
        f"{releases.installed_version()} (retention interval None)"
    ]


def test_the_class_itself_stays_what_everybody_imported() -> None:
    assert Stock.__module__ == "vllm.v1.core.kv_cache_manager"
    assert Stock.__qualname__ == "KVCacheManager"
    assert plugin.foreign_reason(kv_cache_manager) is None


def test_registering_again_changes_nothing() -> None:
    before = vars(Stock)["__new__"]
    plugin.register()
    assert vars(Stock)["__new__"] is before
    assert type(make_manager()) is native_class()


def test_subclasses_are_left_alone() -> None:
    class Other(Stock):  # type: ignore[misc, valid-type]
        pass

    manager = Other(config(), 800, scheduler_block_size=16, hash_block_size=16)
    assert type(manager) is Other
    assert type(manager.block_pool).__module__.startswith("vllm.")


def test_wrong_arguments_are_vllms_error() -> None:
    with pytest.raises(TypeError, match="missing 4 required positional arguments"):
        Stock()


def test_a_stock_instance_can_be_made_without_arguments() -> None:
    assert type(copy.copy(Stock.__new__(Stock))) is Stock


def test_off_at_construction_is_stock(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    monkeypatch.setenv("KVOXIDE", "off")
    assert type(make_manager()) is Stock
    assert lines == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"kv_cache_config": config(full(), hisparse())}, "HiSparseResidentSpec"),
        ({"kv_cache_config": config(full()), "pcp_world_size": 2}, "pcp_world_size is 2"),
    ],
)
def test_what_is_unsupported_runs_on_vllms_manager(
    arguments: dict[str, Any], reason: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments["enable_caching"] = False
    assert type(make_manager(**arguments)) is Stock
    (line,) = lines
    assert "not active" in line
    assert reason in line
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match=reason):
        make_manager(**arguments)


def test_unknown_mode_is_one_line(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    monkeypatch.setenv("KVOXIDE", "sometimes")
    plugin.register()
    assert type(make_manager()) is Stock
    (line,) = lines
    assert "KVOXIDE='sometimes' is not valid; allowed: auto, require, off, shadow" in line


@pytest.mark.parametrize("mode", ["auto", "require", "shadow"])
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "-1"),
        ("VLLM_PIN_SWA_TOKENS", "maybe"),
        ("VLLM_PIN_MIN_DROP_SIZE", "0"),
    ],
)
def test_wrong_policy_refuses_the_start(
    mode: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable}='{value}' is not valid; allowed: "):
        plugin.register()
    monkeypatch.setenv("KVOXIDE", "off")
    plugin.register()


def test_interval_of_no_multiple_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "100")
    with pytest.raises(SettingsError, match=r"VLLM_PREFIX_CACHE_RETENTION_INTERVAL.*16"):
        make_manager(full(), window())


def test_pinning_is_announced_with_its_capacity(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("VLLM_PIN_SWA_TOKENS", "true")
    monkeypatch.setenv("VLLM_PIN_MIN_DROP_SIZE", "4")
    monkeypatch.setenv("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "160")
    assert type(make_manager(max_model_len=160)) is native_class()
    # A prefix of 160 tokens ends with 10 full blocks and 5 of a window of 64.
    assert lines[0].endswith(
        "policy interval=160,pin=4 (from the environment); pinned tier on for drops of 4 blocks or "
        "more. It can hold 99 blocks, which are 1056 tokens or 6 prefixes of 160 tokens"
    )


def test_a_constructor_that_fails_leaves_vllms_manager(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(native_class(), "__init__", fail)
    assert type(make_manager()) is Stock
    (line,) = lines
    assert "unexpected RuntimeError: no such luck" in line
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match="no such luck"):
        make_manager()


def test_shadow_gives_vllms_manager_with_a_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    assert type(make_manager()) is ShadowManager
    assert type(make_manager(full(), hisparse(), enable_caching=False)) is Stock


VERSIONS = ("9.9.1", f"{NEWEST}.post1", "9.9.0rc1", f"{NEWEST}.dev123+g1a2b3c4", f"{NEWEST}+cpu")


@pytest.mark.parametrize("version", VERSIONS)
def test_known_code_is_taken_over_by_any_name(
    version: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setattr(vllm, "__version__", version)
    assert type(make_manager()) is native_class()
    public, code = version.partition("+")[0], recognise().release.version
    (line,) = lines
    assert f"vLLM {public}" + (f" (code of {code})" if public != code else "") in line


def test_missing_compiled_module_is_one_line(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kvoxide._core", None)
    assert type(make_manager()) is Stock
    (line,) = lines
    assert "the compiled module kvoxide._core cannot be imported" in line


def test_second_plugin_in_the_scheduler_is_named(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    class Scheduler:
        def __init__(self, manager: object) -> None:
            self.kv_cache_manager = manager

    module: Any = SimpleNamespace(Scheduler=Scheduler)
    plugin._guard(module)
    plugin._guard(module)
    Scheduler(make_manager())
    Scheduler(Stock.__new__(Stock))
    del lines[:]

    class Foreign(Stock):  # type: ignore[misc, valid-type]
        pass

    foreign = Foreign.__new__(Foreign)
    Scheduler(foreign)
    (line,) = lines
    assert "another plugin put" in line
    assert "Foreign in vLLM's scheduler" in line
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match="another plugin put"):
        Scheduler(foreign)


def test_second_plugin_on_new_is_named(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    def other_new(cls: type, *args: object, **kwargs: object) -> object:
        return object.__new__(cls)

    manager = make_manager(full(), hisparse(), enable_caching=False)
    del lines[:]
    with monkeypatch.context() as patch:
        patch.setattr(Stock, "__new__", other_new)
        assert "other_new" in (plugin.foreign_reason(kv_cache_manager) or "")
        plugin._check_manager(manager)
    assert "another plugin replaced KVCacheManager.__new__ with" in lines[0]


def test_vllm_knows_the_variables_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm import envs

    monkeypatch.setenv("VLLM_PIN_SWA_TOKENS", "1")
    plugin.register()
    assert envs.environment_variables["VLLM_PIN_SWA_TOKENS"]() == "1"
