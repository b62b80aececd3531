"""The adapter against vLLM 0.32.0's own manager, in a process of that release."""

from pathlib import Path

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of

RELEASE = "0.32.0"
# tests/run.sh long sameness has millions.
NUM_CALLS = 100_000
FOUND_BEFORE = sorted((Path(__file__).parent / "differences").glob("*.json"))


def output_of(folder: Path, *arguments: str) -> str:
    """What ``python -m tests.proof.sameness`` prints; fails where it found a difference."""
    command = ["-m", "tests.proof.sameness", "--against", "adapter", *arguments]
    done = preloaded.run(command, environment_of(RELEASE, folder))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    return done.stdout


def test_same_under_random_traffic(tmp_path: Path) -> None:
    output = output_of(tmp_path, "--calls", str(NUM_CALLS))
    assert f"vLLM {RELEASE} and adapter: " in output
    assert "\n0 differences" in output


def test_differences_found_before(tmp_path: Path) -> None:
    output = output_of(tmp_path, "--replay", *map(str, FOUND_BEFORE))
    assert output.count(f"no difference with vLLM {RELEASE}") == len(FOUND_BEFORE) > 0
