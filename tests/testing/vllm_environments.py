"""Processes with one of the vLLM releases, and with kvoxide as an installed plugin."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.testing.paths import ROOT
from tests.testing.vllm_releases import INSTALLED, NEWEST, OLDER, RELEASES, older_folder

HOW_TO_INSTALL = (
    f"tests/vllm_env.sh VENV installs {INSTALLED} and {NEWEST}. VENV/vllm-{NEWEST} goes on "
    "PYTHONPATH. python -m tests.release VERSION --only install installs other releases"
)
ENTRY_POINT = "kvoxide.vllm.plugin:register"


def if_long(releases: Sequence[str]) -> list[Any]:
    """Return the parameters of tests with these releases, which only run with ``--long``."""
    return [pytest.param(release, marks=pytest.mark.long) for release in releases]


# Parameters of tests whose code differs by release, and of others. The last are for tests that
# older releases than the second newest do not pass.
ON_EACH_RELEASE = [*RELEASES, *if_long(OLDER)]
OLDER_IF_LONG = [NEWEST, *if_long([INSTALLED, *OLDER])]
SECOND_IF_LONG = [NEWEST, *if_long([INSTALLED])]


def own_cache(release: str) -> dict[str, str]:
    """Return the variables of a cache that only vLLM ``release`` uses. vLLM needs a whole process
    to inspect a class of models, and another release would overwrite the result."""
    root = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    return {"VLLM_CACHE_ROOT": str(root / f"kvoxide-tests-{release}")}


def environment_of(
    release: str, folder: Path, plugins: dict[str, str] | None = None
) -> dict[str, str]:
    """Return the variables of a process that imports vLLM ``release`` and finds kvoxide's plugin,
    and ``plugins`` (name -> entry point). Skip the test if there is no such vLLM.

    ``folder`` takes the metadata of plugins that are not installed.
    """
    found = _search_paths().get(release)
    if found is None:
        pytest.skip(f"vLLM {release} is not installed; {HOW_TO_INSTALL}")
    plugins = dict(plugins or {})
    if not is_plugin_installed():
        plugins["kvoxide"] = ENTRY_POINT
    write_plugins(folder, plugins)
    path = os.pathsep.join([str(folder), *found, str(ROOT)])
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("KVOXIDE", "VLLM_P"))}
    fixed = {"PYTHONPATH": path, "VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"}
    return {**clean, **fixed, **own_cache(release)}


def is_plugin_installed() -> bool:
    """Return whether vLLM finds kvoxide's plugin on this process's path."""
    return bool(importlib.metadata.entry_points(group="vllm.general_plugins", name="kvoxide"))


def package_of(release: str) -> Path:
    """Return the folder of the package of vLLM ``release``. Skip the test if it is not
    installed."""
    found = find_package(release)
    if found is None:
        pytest.skip(f"vLLM {release} is not installed; {HOW_TO_INSTALL}")
    return found


def find_package(release: str) -> Path | None:
    """Return the folder of the package of vLLM ``release``; None where it is not installed."""
    found = _search_paths().get(release)
    if found is None:
        return None
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [
        Path(path) / "vllm" for path in (*found, *sys.path) if path in found or path not in given
    ]
    return next(folder for folder in folders if (folder / "_version.py").is_file())


def vendor_package(folder: Path, release: str) -> Path:
    """Copy vLLM ``release`` to ``folder``. Return its ``v1/core``, which may be changed."""
    package = package_of(release)
    for source, target in ((package, folder / "vllm"), (package / "v1", folder / "vllm" / "v1")):
        target.mkdir()
        for entry in source.iterdir():
            if entry not in (package / "v1", package / "v1" / "core"):
                (target / entry.name).symlink_to(entry)
    core = folder / "vllm" / "v1" / "core"
    shutil.copytree(package / "v1" / "core", core, ignore=shutil.ignore_patterns("__pycache__"))
    return core


def write_plugins(folder: Path, plugins: dict[str, str]) -> None:
    """Write metadata of plugins for vLLM (name -> entry point) into a folder that will be in the
    path."""
    for name, entry_point in plugins.items():
        metadata = folder / f"plugin_of_test_{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: plugin-of-test-{name}\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(
            f"[vllm.general_plugins]\n{name} = {entry_point}\n"
        )


def paths_without_vllm() -> list[str]:
    """Return the folders of PYTHONPATH that hold no vLLM."""
    return [path for path in _given_paths() if not Path(path, "vllm").is_dir()]


def _given_paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


@cache
def _search_paths() -> dict[str, tuple[str, ...]]:
    """Return for each release the PYTHONPATH under which it is imported. It is this process's path,
    or this path without the folder of this process's vLLM."""
    given = tuple(_given_paths())
    without_vllm = tuple(paths_without_vllm())
    found = {_version_under(path): path for path in (without_vllm, given)}
    for release in OLDER:
        folder = older_folder(release)
        if folder.is_dir():
            found[release] = (str(folder), *without_vllm)
    return {version: path for version, path in found.items() if version}


def _version_under(path: tuple[str, ...]) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_VERSION], env=env, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


# The program does not import vLLM, because that would take seconds.
_PRINT_VERSION = """
import importlib.util, pathlib, re
spec = importlib.util.find_spec("vllm")
if spec:
    text = (pathlib.Path(spec.origin).parent / "_version.py").read_text()
    print(re.search("version = '([0-9.]+)", text)[1])
"""
