"""Tests of the doctor's report for possible findings of a probe. test_processes tests whole
processes."""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kvoxide.cli import main
from kvoxide.vllm.doctor import diagnosis as doctor
from kvoxide.vllm.doctor.diagnosis import Diagnosis
from kvoxide.vllm.doctor.model_group import ModelGroup, ModelGroups
from kvoxide.vllm.doctor.probe import NOTHING_FOUND
from kvoxide.vllm.environment import settings

from tests.testing.vllm_releases import NEWEST

GOOD: dict[str, Any] = {
    "vllm": NEWEST,
    "error": None,
    "reasons": [],
    "release": NEWEST,
    "differences": [],
    "verified": None,
    "replaced": [],
    "scheduler": [],
    "host": [],
    "primary_tier": [],
    "connector": [],
    "pool_access": None,
    "is_loaded": True,
    "foreign": None,
    "manager": doctor.NATIVE_CLASS,
}
STOCK = "vllm.v1.core.kv_cache_manager.KVCacheManager"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "KVOXIDE",
        "KVOXIDE_HOST",
        "KVOXIDE_HOST_POLICY",
        "KVOXIDE_RECORD",
        "VLLM_PLUGINS",
        *settings.POLICY_VARIABLES,
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(importlib.metadata, "entry_points", _entry_points)


def _entry_points(group: str, name: str) -> list[Any]:
    assert (group, name) == ("vllm.general_plugins", "kvoxide")
    return [type("EntryPoint", (), {"value": "kvoxide.vllm.plugin:register"})]


def diagnose(monkeypatch: pytest.MonkeyPatch, **found: Any) -> Diagnosis:
    monkeypatch.setattr(doctor, "run_probe", lambda scheduler, transfer: {**GOOD, **found})
    return doctor.diagnose()


def problems(diagnosis: Diagnosis) -> dict[str, str]:
    assert all(check.remedy for check in diagnosis.checks if not check.ok)
    return {check.name: check.found for check in diagnosis.checks if not check.ok}


def test_good_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = diagnose(monkeypatch)
    assert diagnosis.ok, problems(diagnosis)
    assert diagnosis.settings is not None
    assert diagnosis.settings["mode"] == "auto"


@pytest.mark.parametrize(
    ("variable", "value", "check", "found"),
    [
        ("KVOXIDE", "off", "mode", "off: kvoxide is switched off"),
        ("KVOXIDE", "shadow", "mode", "shadow: vLLM decides, kvoxide compares"),
        ("KVOXIDE", "no", "settings", "KVOXIDE='no' is not valid"),
        ("VLLM_PIN_SWA_TOKENS", "no", "settings", "VLLM_PIN_SWA_TOKENS='no' is not valid"),
        ("VLLM_PLUGINS", "other", "VLLM_PLUGINS", "excludes kvoxide"),
        ("VLLM_PLUGINS", "", "VLLM_PLUGINS", "excludes kvoxide"),
    ],
)
def test_variables(
    variable: str, value: str, check: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    diagnosis = diagnose(monkeypatch)
    assert not diagnosis.ok
    assert found in problems(diagnosis)[check]


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, "mode auto; policy vllm"),
        (
            {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "8192", "VLLM_PIN_SWA_TOKENS": "1"},
            "mode auto; policy interval=8192,pin=16",
        ),
        ({"KVOXIDE_POLICY": "adaptive"}, "mode auto; policy adaptive"),
        (
            {"KVOXIDE_POLICY": "adaptive,share=0.5", "KVOXIDE": "require"},
            "mode require; policy adaptive,share=0.5",
        ),
    ],
    ids=["standard", "interval and pins", "adaptive", "adaptive with a share"],
)
def test_the_command_prints_the_retention_in_force(
    environ: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(doctor, "run_probe", lambda scheduler, transfer: GOOD)
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 0, done.output
    assert [line for line in done.output.splitlines() if "settings: " in line] == [
        f"ok      settings: {told}"
    ]


def test_connectors_with_the_block_pool_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def access(name: str, **found: Any) -> dict[str, Any]:
        return {"name": name, "error": None, "methods": [], "changes": [], **found}

    accesses = [
        access("a.Reads", methods=["bind_gpu_block_pool"]),
        access("a.Wraps", changes=["a.Wraps sets block_pool.touch in bind(), line 3"]),
        access("a.Other"),
        {"name": "Missing", "error": "ValueError: Unsupported connector type: Missing"},
    ]
    diagnosis = diagnose(monkeypatch, pool_access=accesses)
    reads, wraps, other, missing = diagnosis.checks[-4:]
    assert (reads.ok, wraps.ok, other.ok, missing.ok) == (True, False, True, False)
    assert reads.found.startswith("defines bind_gpu_block_pool. It gets the block pool")
    assert wraps.found == "a.Wraps sets block_pool.touch in bind(), line 3"
    assert "KVOXIDE=off" in wraps.remedy
    assert "Unsupported connector type" in missing.found
    assert diagnosis.ok, "vLLM's manager takes over later"
    monkeypatch.setenv("KVOXIDE", "require")
    assert not diagnose(monkeypatch, pool_access=accesses).ok, "the assignment would raise"


def test_adaptive_retention_beside_other_policies_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", "adaptive")
    monkeypatch.setenv("VLLM_PIN_SWA_TOKENS", "1")
    diagnosis = diagnose(monkeypatch)
    assert not diagnosis.ok
    assert "KVOXIDE_POLICY='adaptive' is not valid" in problems(diagnosis)["settings"]


@pytest.mark.parametrize(
    ("environ", "reasons", "told"),
    [
        ({}, [], ["kvoxide", "kvoxide"]),
        ({"KVOXIDE_HOST": "off"}, [], ["vLLM's own, because KVOXIDE_HOST is off"]),
        ({"KVOXIDE_HOST": "shadow"}, [], ["vLLM decides, kvoxide compares"] * 2),
        ({"KVOXIDE": "shadow"}, [], ["vLLM decides, kvoxide compares"] * 2),
        ({"KVOXIDE_HOST": "auto"}, ["lru.py has changed"], ["lru.py has changed"] * 2),
        ({"KVOXIDE": "off"}, [], ["vLLM's own, because KVOXIDE is off"]),
        (
            {"KVOXIDE_HOST": "auto", "KVOXIDE": "shadow"},
            [],
            ["vLLM's own, because KVOXIDE is shadow"],
        ),
        (
            {"VLLM_USE_SIMPLE_KV_OFFLOAD": "1"},
            [],
            [
                "kvoxide",
                "kvoxide",
                "VLLM_USE_SIMPLE_KV_OFFLOAD selects SimpleCPUOffloadConnector, which kvoxide does "
                "not support",
            ],
        ),
    ],
)
def test_the_host_tier_is_told(
    environ: dict[str, str], reasons: list[str], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    checks = diagnose(monkeypatch, host=reasons, connector=reasons).checks
    found = [check for check in checks if check.name in ("CPU offload cache", "connector")]
    assert [check.found for check in found] == told
    assert not any(check.decides for check in found)


@pytest.mark.parametrize(
    ("environ", "found", "said"),
    [
        ({}, {}, "adaptive, together with the GPU's memory, if the connector's settings allow it"),
        ({"KVOXIDE_HOST": "off"}, {}, "vLLM's own, because a mode is off"),
        ({"KVOXIDE": "shadow"}, {}, "vLLM's own, because a mode is shadow"),
        (
            {"KVOXIDE_RECORD": "."},
            {},
            "adaptive, together with the GPU's memory, if the connector's settings allow it",
        ),
        (
            {},
            {"connector": ["scheduler.py has changed"]},
            "vLLM's own, because kvoxide does not provide all parts",
        ),
        ({}, NOTHING_FOUND, "not checked"),
        ({}, {**NOTHING_FOUND, "vllm": NEWEST, "error": "TypeError: broken"}, "not checked"),
    ],
)
def test_the_policy_of_cpu_memory_is_shown(
    environ: dict[str, str],
    found: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVOXIDE_HOST_POLICY", "adaptive")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    checks = diagnose(monkeypatch, **found).checks
    (check,) = [check for check in checks if check.name == "policy of CPU memory"]
    assert check.found == said
    assert check.ok == said.startswith("adaptive")
    assert not check.decides


def test_without_the_setting_no_policy_of_cpu_memory_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = diagnose(monkeypatch).checks
    assert not [check for check in checks if check.name == "policy of CPU memory"]


def transfer(*values: object) -> str:
    """Return a --kv-transfer-config of connectors with these entries for kvoxide."""
    children = [
        {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"kvoxide": value}}
        for value in values
    ]
    if len(children) == 1:
        return json.dumps(children[0])
    extra = {"connectors": [{"kv_connector": "NixlConnector"}, *children]}
    return json.dumps({"kv_connector": "MultiConnector", "kv_connector_extra_config": extra})


@pytest.mark.parametrize(
    ("variable", "values", "expected"),
    [
        (
            None,
            ["off"],
            [
                "off; KVOXIDE_HOST is not set. In force: off, from "
                "kv_connector_extra_config.kvoxide",
                "vLLM's own, because kv_connector_extra_config.kvoxide is off",
            ],
        ),
        (
            "off",
            ["require"],
            [
                "require; KVOXIDE_HOST is off. In force: off, from KVOXIDE_HOST",
                "vLLM's own, because KVOXIDE_HOST is off",
            ],
        ),
        (
            None,
            ["shadow", "off"],
            [
                "shadow; KVOXIDE_HOST is not set. In force: shadow, from "
                "kv_connector_extra_config.kvoxide",
                "vLLM decides, kvoxide compares",
                "vLLM decides, kvoxide compares",
                "off; KVOXIDE_HOST is not set. In force: off, from "
                "kv_connector_extra_config.kvoxide",
                "vLLM's own, because kv_connector_extra_config.kvoxide is off",
            ],
        ),
    ],
)
def test_the_entry_of_a_connector_is_shown_with_the_variable(
    variable: str | None, values: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("KVOXIDE_HOST", variable)
    monkeypatch.setattr(doctor, "run_probe", lambda scheduler, transfer: GOOD)
    diagnosis = doctor.diagnose(transfer=transfer(*values))
    names = ("kv_connector_extra_config.kvoxide", "CPU offload cache", "connector")
    assert [check.found for check in diagnosis.checks if check.name in names] == expected
    assert diagnosis.ok


TIERING = json.dumps(
    {
        "kv_connector": "OffloadingConnector",
        "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec"},
    }
)


@pytest.mark.parametrize(
    ("environ", "reasons", "said"),
    [
        ({}, [], {"CPU offload cache": "kvoxide", "connector": "kvoxide"}),
        (
            {},
            ["manager.py has changed"],
            {"CPU offload cache": "manager.py has changed", "connector": "kvoxide"},
        ),
        (
            {"KVOXIDE_HOST": "shadow"},
            [],
            {
                "CPU offload cache": "vLLM's own, because the mode shadow compares nothing with "
                "TieringOffloadingSpec"
            },
        ),
        (
            {"KVOXIDE_HOST_POLICY": "adaptive"},
            [],
            {
                "CPU offload cache": "kvoxide",
                "connector": "kvoxide",
                "policy of CPU memory": "vLLM's own, because TieringOffloadingSpec manages CPU "
                "memory",
            },
        ),
    ],
)
def test_the_primary_tier_of_several_is_checked(
    environ: dict[str, str],
    reasons: list[str],
    said: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = {**GOOD, "primary_tier": reasons}
    monkeypatch.setattr(doctor, "run_probe", lambda scheduler, transfer: found)
    names = ("CPU offload cache", "connector", "policy of CPU memory")
    checks = [check for check in doctor.diagnose(transfer=TIERING).checks if check.name in names]
    assert {check.name: check.found for check in checks} == said
    assert {check.name for check in checks if check.ok} == {
        name for name, found in said.items() if found == "kvoxide"
    }
    # A connector without other tiers does not depend on the code of vLLM's primary tier.
    plain = {check.name: check.found for check in doctor.diagnose(transfer=transfer("auto")).checks}
    assert plain["CPU offload cache"] != "manager.py has changed"


def test_a_wrong_entry_of_a_connector_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "run_probe", lambda scheduler, transfer: GOOD)
    diagnosis = doctor.diagnose(transfer=transfer("yes"))
    assert not diagnosis.ok
    assert problems(diagnosis) == {
        "kv_connector_extra_config.kvoxide": "kv_connector_extra_config.kvoxide='yes' is not "
        "valid; allowed: auto, require, off, shadow"
    }


def test_allowed_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "other,kvoxide")
    assert diagnose(monkeypatch).ok


@pytest.mark.parametrize(
    ("found", "check", "text"),
    [
        ({"vllm": None}, "vLLM", "not installed"),
        ({"vllm": None, "error": "OSError: libtorch"}, "vLLM", "libtorch"),
        (
            {"reasons": ["vLLM 0.40.0 is not a release"], "manager": STOCK},
            "vLLM release",
            "0.40.0",
        ),
        (
            {"differences": ["v1/x.py: f has changed"], "reasons": ["unknown"]},
            "vLLM release",
            f"Differences from {NEWEST}: v1/x.py: f has changed",
        ),
        (
            {"differences": ["a has changed"], "reasons": ["unknown", "the certificate was cut"]},
            "vLLM release",
            "a has changed; the certificate was cut",
        ),
        ({"replaced": ["vllm.f is replaced by x.f"]}, "plugins", "replaced by x.f"),
        ({"manager": STOCK}, "manager of a new server", STOCK),
        (
            {"manager": "x.Y", "foreign": "another plugin put x.Y in vLLM's scheduler"},
            "manager of a new server",
            "another plugin put x.Y",
        ),
        ({"error": "ValueError: no"}, "manager of a new server", "ValueError: no"),
    ],
)
def test_probes(
    found: dict[str, Any], check: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis = diagnose(monkeypatch, **found)
    assert not diagnosis.ok
    assert text in problems(diagnosis)[check]


@pytest.mark.parametrize(
    ("found", "ok", "text"),
    [
        ({}, True, "kvoxide supports all that own.Scheduler does"),
        ({"scheduler": ["it sets block_pool.blocks"]}, False, "it sets block_pool.blocks"),
        ({"vllm": None}, False, "not checked"),
    ],
)
def test_a_scheduler_class_is_told(
    found: dict[str, Any], ok: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "run_probe", lambda scheduler, transfer: {**GOOD, **found})
    diagnosis = doctor.diagnose(scheduler="own.Scheduler")
    (check,) = [check for check in diagnosis.checks if check.name == "scheduler class"]
    assert (diagnosis.ok, check.ok, check.found) == (ok, ok, text)


def test_missing_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    assert "vllm.general_plugins" in problems(diagnose(monkeypatch))["entry point"]


def test_a_recording_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(check.name == "recording" for check in diagnose(monkeypatch).checks)
    for folder in (tmp_path, tmp_path / "new" / "one"):
        monkeypatch.setenv("KVOXIDE_RECORD", str(folder))
        (check,) = [c for c in diagnose(monkeypatch).checks if c.name == "recording"]
        assert (check.ok, check.found) == (
            True,
            f"on, to {folder}; limit 16 GiB, or half of the free disk space",
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVOXIDE_RECORD", str(tmp_path / "file" / "below"))
    diagnosis = diagnose(monkeypatch)
    assert "cannot be written: Not a directory" in problems(diagnosis)["recording"]
    assert diagnosis.ok, "the server runs on kvoxide all the same"


@pytest.mark.parametrize(("kind", "ok"), [("full_attention", True), ("mamba", False)])
def test_a_verified_vllm_is_told_with_the_kinds_it_was_verified_for(
    kind: str, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = {"calls": 4_321, "kinds": ["full_attention", "rswa"]}
    found = {**GOOD, "differences": ["f has changed"], "verified": verified}
    monkeypatch.setattr(doctor, "run_probe", lambda scheduler, transfer: found)
    group = ModelGroup(kind, 2, "NewForCausalLM")
    diagnosis = doctor.diagnose(ModelGroups((group,)))
    (told,) = [check.found for check in diagnosis.checks if "verified with" in check.found]
    assert told == (
        "not a known release, but verified with 4321 calls for groups of full_attention, rswa"
    )
    assert diagnosis.ok == ok
    if not ok:
        assert problems(diagnosis)["model"] == "the certificate does not cover these kinds: mamba"
