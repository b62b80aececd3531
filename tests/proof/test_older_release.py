"""Runs with older releases of vLLM what the other files of this folder run with the newest. One
process of each release runs all of it, because importing vLLM takes longer than most of it."""

from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import INSTALLED, OLDER

INSIDE = Path(__file__).with_name("inside_older_release.py")


@pytest.mark.parametrize("release", [INSTALLED, *OLDER])
def test_with_an_older_release(release: str, tmp_path: Path) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(INSIDE)]
    done = preloaded.run(command, environment_of(release, tmp_path))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
