"""Runs the tests that need vLLM, with each release, in processes of their own. The plugin changes
vLLM's class permanently, and other tests compare with the original class."""

from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.vllm_environments import RELEASES, environment_of

HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("inside_*.py"))
# The first reads vLLM's class without the plugin. The others set a variable before the plugin is
# loaded.
APART = [["inside_releases.py"], ["inside_recording.py", "inside_recording_ends.py"]]
ALONE = tuple(name for names in APART for name in names)
# Each of the processes that the other files share runs one of these.
LONGEST = ("inside_connector.py", "inside_hashing.py", "inside_shadow.py")
SHARING = [*LONGEST, *(name for name in FILES if name not in ALONE + LONGEST)]
# Importing vLLM takes longer than the tests in most of the files.
PROCESSES = APART + [SHARING[at :: len(LONGEST)] for at in range(len(LONGEST))]


@pytest.mark.parametrize("files", PROCESSES, ids=" ".join)
@pytest.mark.parametrize("release", RELEASES)
def test_with(release: str, files: list[str], tmp_path: Path) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=inside_*.py"]
    command += [str(HERE / name) for name in files]
    done = preloaded.run(command, environment_of(release, tmp_path))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
