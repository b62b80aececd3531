"""vLLM's own tests, out of the source archive of a release."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.testing.paths import TESTS
from tests.testing.vllm_releases import cache_folder


def sources_of(release: str) -> Path:
    """Return a folder of the cache with vLLM's tests, which is filled on first use."""
    folder = cache_folder() / f"sources-{release}"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _fill(folder, release)
        (folder / ".complete").touch()
    return folder


def _fill(folder: Path, release: str) -> None:
    """Download the archive. pip keeps an archive only when it knows the archive's name. To find
    the name, it needs torch and the packages of tests/requirements-sources.txt."""
    build = folder / "build"
    _pip("install", "--target", str(build), "-r", str(TESTS / "requirements-sources.txt"))
    _pip(
        *("download", "--no-deps", "--no-build-isolation", "--no-binary", "vllm"),
        *("--dest", str(folder), f"vllm=={release}"),
        PYTHONPATH=str(build),
        VLLM_VERSION_OVERRIDE=release,
        VLLM_TARGET_DEVICE="empty",
    )
    with tarfile.open(folder / f"vllm-{release}.tar.gz") as archive:
        root = f"vllm-{release}/"
        for member in archive:
            member.name = member.name.removeprefix(root)
            if member.name == "pyproject.toml" or member.name.startswith("tests/"):
                archive.extract(member, folder, filter="data")


def _pip(*arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", arguments[0], "--quiet", *arguments[1:]]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, env=kept | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()[-2_000:]}")
