"""Runs the tests that need vLLM, with each release, in processes of their own. The plugin changes
vLLM's class permanently, and other tests compare with the original class."""

from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import INSTALLED, NEWEST, OLDER

HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("inside_*.py"))
# The first reads vLLM's class without the plugin. The others set a variable before the plugin is
# loaded.
RECORDING = [
    "inside_recording.py",
    "inside_recording_ends.py",
    "inside_recorded_outcomes.py",
    "inside_recorded_hints.py",
    "inside_recorded_together.py",
]
APART = [["inside_releases.py"], RECORDING]
# Tests of code that differs by release. Each whole run has them with an older one too.
BY_RELEASE = [
    "inside_connector.py",
    "inside_events.py",
    "inside_hashing.py",
    "inside_host.py",
    "inside_host_tiering.py",
    "inside_outcomes.py",
    "inside_standstill.py",
    "inside_standstill_others.py",
    "inside_takeover.py",
    "inside_wrapped.py",
]
ALONE = tuple(name for names in APART for name in names)
# Each of the processes that the other files share runs one of these.
LONGEST = ("inside_connector.py", "inside_hashing.py", "inside_shadow.py")
SHARING = [*LONGEST, *(name for name in FILES if name not in ALONE + LONGEST)]
# kvoxide has no host tier for older releases.
OF_HOST = ("connector", "host")
# Importing vLLM takes longer than the tests in most of the files.
PROCESSES = APART + [SHARING[at :: len(LONGEST)] for at in range(len(LONGEST))]
OTHERS = [name for name in SHARING if name not in BY_RELEASE]


@pytest.mark.parametrize("files", PROCESSES, ids=" ".join)
@pytest.mark.parametrize("release", [NEWEST])
def test_with(release: str, files: list[str], tmp_path: Path) -> None:
    run(release, files, tmp_path)


@pytest.mark.parametrize("files", [*APART, BY_RELEASE], ids=" ".join)
@pytest.mark.parametrize("release", [INSTALLED])
def test_with_an_older_release_what_differs(release: str, files: list[str], tmp_path: Path) -> None:
    run(release, files, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("files", [OTHERS[::2], OTHERS[1::2]], ids=" ".join)
@pytest.mark.parametrize("release", [INSTALLED])
def test_with_an_older_release_the_rest(release: str, files: list[str], tmp_path: Path) -> None:
    run(release, files, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("files", PROCESSES, ids=" ".join)
@pytest.mark.parametrize("release", OLDER)
def test_with_older(release: str, files: list[str], tmp_path: Path) -> None:
    run(release, [name for name in files if not of_host(name)], tmp_path)


def of_host(name: str) -> bool:
    return any(part in name for part in OF_HOST)


def run(release: str, files: list[str], folder: Path) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=inside_*.py"]
    command += [str(HERE / name) for name in files]
    done = preloaded.run(command, environment_of(release, folder))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
