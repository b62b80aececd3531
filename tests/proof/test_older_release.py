"""Runs with vLLM 0.32.0 what the other files of this folder run with 0.33.0. All of it runs in one
process of that release, because importing vLLM takes longer than most of it."""

from pathlib import Path

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of

INSIDE = Path(__file__).with_name("inside_older_release.py")


def test_with_the_older_release(tmp_path: Path) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(INSIDE)]
    done = preloaded.run(command, environment_of("0.32.0", tmp_path))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
