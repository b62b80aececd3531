"""The tests that need vLLM, with each release, in processes of their own: the plugin changes vLLM's
class for good, and other tests compare with it as it was."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.vllm_environments import RELEASES, environment_of

HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("inside_*.py"))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("release", RELEASES)
def test_with(release: str, file: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)]
    command += ["-o", "python_files=inside_*.py"]
    env = environment_of(release, tmp_path)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
