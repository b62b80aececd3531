"""Checks whether a server started here would run on kvoxide, and says what to do if it would
not."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from kvoxide._install_hints import REINSTALL
from kvoxide.vllm.doctor.connectors import extra_configs, has_other_tiers
from kvoxide.vllm.doctor.model_group import ModelGroups
from kvoxide.vllm.doctor.probe import run_probe
from kvoxide.vllm.environment import (
    HostMode,
    Settings,
    SettingsError,
    compiled_module_problem,
    host_mode,
)
from kvoxide.vllm.environment import settings as variables
from kvoxide.vllm.environment.host_mode import ENTRY, KEY

ENTRY_POINT_GROUP: Final = "vllm.general_plugins"
ENTRY_POINT_NAME: Final = "kvoxide"
NATIVE_CLASS: Final = "kvoxide.vllm.adapter.manager.KVCacheManager"


@dataclass(frozen=True)
class Check:
    """One checked fact. ``remedy`` says what to do if it is not ``ok``. If ``decides`` is false,
    the fact does not change whether a server runs on kvoxide."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    decides: bool = True


@dataclass(frozen=True)
class Diagnosis:
    """Everything that ``kvoxide doctor`` reports."""

    versions: Mapping[str, str | None]
    settings: Mapping[str, Any] | None
    checks: list[Check]
    model: ModelGroups | None

    @property
    def ok(self) -> bool:
        """Whether a server that is started here would run on kvoxide."""
        return all(check.ok for check in self.checks if check.decides)

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        return {
            "ok": self.ok,
            "versions": dict(self.versions),
            "settings": self.settings,
            "checks": [asdict(check) for check in self.checks],
            "groups": self.model
            and [{**asdict(group), "is_native": group.is_native} for group in self.model.groups],
            "hit_tokens": self.model and self.model.hit_tokens,
            "notes": list(self.model.notes) if self.model else [],
        }


def diagnose(
    model: ModelGroups | None = None,
    scheduler: str | None = None,
    *,
    transfer: str | None = None,
) -> Diagnosis:
    """Check this environment. If they are given, also check a model's groups, a scheduler class
    (``module.Class``) and a server's ``--kv-transfer-config``."""
    found = run_probe(scheduler, transfer)
    checks = [_compiled_module(), _vllm(found), _entry_point(), _allowed(), _settings(), _mode()]
    checks += _recording()
    checks += _takes_over(found)
    checks += _offloading(found, transfer)
    checks += [] if scheduler is None else [_scheduler(scheduler, found)]
    checks += _pool_accesses(found)
    checks += [] if model is None else [_model(model, found["verified"])]
    return Diagnosis(_versions(found), _settings_values(), checks, model)


def _versions(found: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        "python": platform.python_version(),
        "kvoxide": _installed_version(),
        "compiled module": _compiled_version(),
        "vllm": found["vllm"],
    }


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version("kvoxide")
    except importlib.metadata.PackageNotFoundError:
        return None


def _compiled_version() -> str | None:
    if compiled_module_problem():
        return None
    from kvoxide._core import __version__

    return __version__


def _compiled_module() -> Check:
    problem = compiled_module_problem()
    if problem is None:
        return Check("compiled module", True, f"kvoxide._core {_compiled_version()}")
    return Check("compiled module", False, problem, REINSTALL)


def _vllm(found: Mapping[str, Any]) -> Check:
    if found["vllm"] is not None:
        return Check("vLLM", True, f"vLLM {found['vllm']}")
    if found["error"]:
        return Check("vLLM", False, found["error"], "repair the installation of vLLM")
    return Check(
        "vLLM",
        False,
        "vLLM is not installed here",
        "install vLLM, or run this command where it is installed",
    )


def _entry_point() -> Check:
    found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=ENTRY_POINT_NAME)
    if found:
        return Check("entry point", True, f"{ENTRY_POINT_GROUP}: {next(iter(found)).value}")
    return Check(
        "entry point",
        False,
        f"{ENTRY_POINT_GROUP} has no {ENTRY_POINT_NAME}, so vLLM does not load kvoxide",
        "install kvoxide into this environment with pip",
    )


def _allowed() -> Check:
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is None or ENTRY_POINT_NAME in allowed.split(","):
        return Check("VLLM_PLUGINS", True, "includes kvoxide" if allowed else "not set")
    return Check(
        "VLLM_PLUGINS",
        False,
        f"VLLM_PLUGINS={allowed!r} excludes kvoxide",
        f"set VLLM_PLUGINS={','.join(filter(None, [allowed, ENTRY_POINT_NAME]))}",
    )


def _settings() -> Check:
    try:
        found = Settings.from_environ()
        return Check("settings", True, f"mode {found.mode}; policy {found.policy}")
    except SettingsError as error:
        return Check("settings", False, str(error), f"change or unset {error.variable}")
    except ImportError:
        return Check("settings", True, "not read, because the compiled module is missing")


def _settings_values() -> dict[str, Any] | None:
    try:
        return asdict(Settings.from_environ())
    except (SettingsError, ImportError):
        return None


def _mode() -> Check:
    try:
        mode = variables.parse_mode(os.environ)
    except SettingsError:
        return Check("mode", False, "invalid, so vLLM's own manager is used", "see settings")
    if mode in ("auto", "require"):
        return Check("mode", True, mode)
    why = {"off": "kvoxide is switched off", "shadow": "vLLM decides, kvoxide compares"}
    remedy = "unset KVOXIDE, or set it to auto or require"
    return Check("mode", False, f"{mode}: {why[mode]}", remedy)


def _recording() -> Iterator[Check]:
    folder = variables.recording_folder()
    if folder is None:
        return
    name = "recording"
    try:
        limit = variables.recording_limit()
    except SettingsError as error:
        yield Check(name, False, str(error), f"change or unset {error.variable}", decides=False)
        return
    try:
        with TemporaryFile(dir=_nearest_folder(folder)):
            yield Check(name, True, f"on, to {folder}; {_limit(limit)}", decides=False)
    except OSError as error:
        found = f"{folder} cannot be written: {error.strerror}"
        remedy = f"set {variables.RECORD_VARIABLE} to a writable folder, or unset it"
        yield Check(name, False, found, remedy, decides=False)


def _limit(limit: int | None) -> str:
    if limit is None:
        return "limit 16 GiB, or half of the free disk space"
    return f"limit {limit:,} bytes" if limit else "no limit"


def _nearest_folder(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _takes_over(found: Mapping[str, Any]) -> Iterator[Check]:
    if found["vllm"] is None:
        return
    yield _known_code(found)
    yield _running_code(found)
    yield _manager(found)


def _known_code(found: Mapping[str, Any]) -> Check:
    name = "vLLM release"
    if found["verified"]:
        calls, kinds = found["verified"]["calls"], ", ".join(found["verified"]["kinds"])
        verified = f"not a known release, but verified with {calls} calls for groups of {kinds}"
        return Check(name, True, verified)
    if found["differences"]:
        nearest, differences = found["release"], "; ".join(found["differences"])
        unknown = (
            f"this vLLM build is not a known release. Differences from {nearest}: {differences}"
        )
        return Check(name, False, "; ".join([unknown, *found["reasons"][1:]]), _OTHER_RELEASE)
    if found["reasons"]:
        return Check(name, False, "; ".join(found["reasons"]), _OTHER_RELEASE)
    return Check(name, True, f"it has the code of vLLM {found['release']}")


_OTHER_RELEASE: Final = (
    "install a supported vLLM release (docs/reference/compatibility.md) or a newer kvoxide. Or run "
    "`kvoxide verify` to compare behaviour; set KVOXIDE_ACCEPT=verified to trust its result. "
    "KVOXIDE=shadow compares while serving"
)


def _running_code(found: Mapping[str, Any]) -> Check:
    name = "plugins"
    if found["replaced"]:
        remedy = "remove that plugin, or kvoxide, from VLLM_PLUGINS"
        return Check(name, False, "; ".join(found["replaced"]), remedy)
    return Check(name, True, "no plugin changed vLLM's code")


def _scheduler(name: str, found: Mapping[str, Any]) -> Check:
    if found["scheduler"]:
        remedy = "change these lines of the class, or set KVOXIDE=off"
        return Check("scheduler class", False, "; ".join(found["scheduler"]), remedy)
    if found["vllm"] is None or found["error"]:
        return Check("scheduler class", False, "not checked", "see the checks above")
    return Check("scheduler class", True, f"kvoxide supports all that {name} does")


def _pool_accesses(found: Mapping[str, Any]) -> Iterator[Check]:
    for access in found["pool_access"] or ():
        name = f"connector {access['name']}"
        if access["error"]:
            remedy = "check kv_connector and kv_connector_module_path"
            yield Check(name, False, f"not checked: {access['error']}", remedy, decides=False)
        elif access["changes"]:
            # With KVOXIDE=require the server would stop.
            decides = variables.current_mode() == "require"
            changes = "; ".join(access["changes"])
            yield Check(name, False, changes, _POOL_CHANGES, decides=decides)
        elif access["methods"]:
            yield Check(name, True, f"defines {', '.join(access['methods'])}. {_POOL_ACCESS}")
        else:
            yield Check(name, True, "does not get the block pool")


_POOL_ACCESS: Final = (
    "It gets the block pool and may read it. If it wraps a method of the pool or sets a field, "
    "kvoxide switches to vLLM's own manager. With KVOXIDE=require, this raises an error"
)
_POOL_CHANGES: Final = (
    "set KVOXIDE=off to start with vLLM's own manager. With KVOXIDE=auto, kvoxide switches to it "
    "when the connector does this. With KVOXIDE=require, this raises an error"
)


def _manager(found: Mapping[str, Any]) -> Check:
    name = "manager of a new server"
    if found["error"]:
        return Check(name, False, found["error"], "see the checks above")
    if found["manager"] == NATIVE_CLASS:
        return Check(name, True, found["manager"])
    if found.get("foreign"):
        return Check(name, False, found["foreign"], "remove one of both from VLLM_PLUGINS")
    return Check(name, False, found["manager"], "see the other checks")


_OFFLOADING: Final = "CPU offload cache"


def _offloading(found: Mapping[str, Any], transfer: str | None) -> Iterator[Check]:
    """Yield which part of offloading to CPU memory each connector would get from kvoxide, and which
    setting says so."""
    for extra_config in extra_configs(transfer) or [{}]:
        try:
            host = host_mode(extra_config)
        except SettingsError as error:
            if error.variable == ENTRY:
                yield Check(ENTRY, False, str(error), "change the entry, or remove it")
            return  # the settings are checked elsewhere
        except ImportError:
            return  # so is the compiled module
        if KEY in extra_config:
            yield Check(ENTRY, True, _sources(extra_config, host), decides=False)
        is_tiered = has_other_tiers(extra_config)
        reasons = found["primary_tier" if is_tiered else "host"]
        yield from _host_tier({**found, "host": reasons}, host, is_tiered=is_tiered)


def _sources(extra_config: Mapping[str, Any], host: HostMode) -> str:
    variable = os.environ.get(variables.HOST_VARIABLE) or "not set"
    return (
        f"{extra_config[KEY]}; {variables.HOST_VARIABLE} is {variable}. In force: {host.mode}, "
        f"from {host.source}"
    )


def _host_tier(found: Mapping[str, Any], host: HostMode, *, is_tiered: bool) -> Iterator[Check]:
    """Yield which part of offloading to CPU memory a connector in this mode would get."""
    variable, manager_mode = variables.HOST_VARIABLE, variables.current_mode()
    if "off" in (host.mode, manager_mode):
        at_fault = host.source if host.mode == "off" else variables.MODE_VARIABLE
        yield Check(_OFFLOADING, True, f"vLLM's own, because {at_fault} is off", decides=False)
    elif manager_mode == "shadow" and host.mode != "shadow":
        used = f"vLLM's own, because {variables.MODE_VARIABLE} is shadow"
        yield Check(_OFFLOADING, False, used, f"unset {host.source}", decides=False)
    elif host.mode == "shadow" and is_tiered:
        used = "vLLM's own, because the mode shadow compares nothing with TieringOffloadingSpec"
        yield Check(_OFFLOADING, False, used, f"unset {host.source}", decides=False)
    elif found["vllm"] is not None and not found["error"]:
        remedy = f"see the checks above, or set {variable}=off"
        ours = "vLLM decides, kvoxide compares" if host.mode == "shadow" else "kvoxide"
        for name, reasons in ((_OFFLOADING, found["host"]), ("connector", found["connector"])):
            used = "; ".join(reasons) or ours
            yield Check(name, not reasons, used, remedy, decides=False)
        yield from _simple_connector()
    yield from _host_policy(found, host, is_tiered=is_tiered)


def _host_policy(found: Mapping[str, Any], host: HostMode, *, is_tiered: bool) -> Iterator[Check]:
    """Yield whether GPU and CPU memory would decide together, if that is asked for."""
    variable = variables.HOST_POLICY_VARIABLE
    if variables.current().host_policy != "adaptive":
        return
    name, remedy = "policy of CPU memory", f"see the checks above, or unset {variable}"
    modes = (host.mode, variables.current_mode())
    if "off" in modes or "shadow" in modes:
        used = f"vLLM's own, because a mode is {' and '.join(sorted({*modes} - {'auto'}))}"
        yield Check(name, False, used, f"unset {variable}", decides=False)
    elif found["vllm"] is None or found["error"]:
        yield Check(name, False, "not checked", remedy, decides=False)
    elif found["host"] or found["connector"] or found["manager"] != NATIVE_CLASS:
        used = "vLLM's own, because kvoxide does not provide all parts"
        yield Check(name, False, used, remedy, decides=False)
    elif is_tiered:
        used = "vLLM's own, because TieringOffloadingSpec manages CPU memory"
        yield Check(name, False, used, f"unset {variable}", decides=False)
    else:
        used = "adaptive, together with the GPU's memory, if the connector's settings allow it"
        yield Check(name, True, used, decides=False)


def _simple_connector() -> Iterator[Check]:
    variable = "VLLM_USE_SIMPLE_KV_OFFLOAD"
    if os.environ.get(variable, "0") not in ("", "0"):
        used = f"{variable} selects SimpleCPUOffloadConnector, which kvoxide does not support"
        yield Check("connector", False, used, f"unset {variable}", decides=False)


def _model(read: ModelGroups, verified: Mapping[str, Any] | None) -> Check:
    groups = read.groups
    if not groups:
        remedy = "run this command where vLLM is installed, so that vLLM reads the model"
        return Check("model", False, read.notes[0], remedy, decides=False)
    others = sorted({group.kind for group in groups if not group.is_native})
    if not others and verified is not None:
        uncovered = sorted({group.kind for group in groups} - set(verified["kinds"]))
        if uncovered:
            missing = f"the certificate does not cover these kinds: {', '.join(uncovered)}"
            return Check("model", False, missing, "run `kvoxide verify` with more --seconds")
    if not others:
        return Check("model", True, "kvoxide supports all kinds of groups")
    return Check(
        "model",
        False,
        f"not supported: {', '.join(others)}; vLLM's own manager would be used",
        "none needed: with KVOXIDE=auto, the model runs on vLLM's own manager",
    )
