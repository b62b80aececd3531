"""The tests that need vLLM, with each release, in processes of their own: the plugin changes vLLM's
class for good, and other tests compare with it as it was."""

from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.vllm_environments import RELEASES, environment_of

HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("inside_*.py"))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("release", RELEASES)
def test_with(release: str, file: str, tmp_path: Path) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)]
    command += ["-o", "python_files=inside_*.py"]
    done = preloaded.run(command, environment_of(release, tmp_path))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
