"""Tests that vLLM gives the recorded answers when the package itself asks it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import INSTALLED, NEWEST

from .cases import Case, recorded

STATES = Case("qwen3.5-9b")
REFUSED = Case("llama-3.1-8b-with-cache-in-int8")
# The limit for a machine that does nothing else, doubled for a machine that runs tests.
SECONDS = 120


def asked(release: str, folder: Path, *cases: Case, num_new: int = 0) -> list[dict[str, Any]]:
    """Return the answers to questions. A new Python asks each of the first ``num_new``."""
    environment = environment_of(release, folder)
    environment |= {"KVOXIDE": "off", "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.vllm.models.inside_from_vllm", str(num_new)]
    command += [str(case.config) for case in cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["config"] for row in rows] == [case.config.name for case in cases], done.stderr
    return rows


@pytest.mark.slow
def test_it_answers_as_recorded_and_once(tmp_path: Path) -> None:
    first, refused, again = asked(NEWEST, tmp_path, STATES, REFUSED, STATES, num_new=1)
    theirs = dict(recorded())[STATES]
    for name in ("block_bytes", "request_bytes", "max_model_len", "hash_tokens", "hit_tokens"):
        assert first["answer"][name] == theirs[name]
    kinds = [(row["kind"], row["block_size"], row["layers"]) for row in first["answer"]["groups"]]
    expected = [tuple(row[1:4]) for row in theirs["groups"] for _ in range(row[0])]
    assert kinds == expected
    assert first["seconds"] < SECONDS
    assert again["answer"] == first["answer"]
    assert again["seconds"] < 1
    told = refused["answer"]["refused"]
    assert f"vLLM {NEWEST} refuses to start: Currently supported kv cache quantization" in told


@pytest.mark.slow
def test_the_release_that_is_installed_answers(tmp_path: Path) -> None:
    (found,) = asked(INSTALLED, tmp_path, STATES)
    assert found["answer"].get("vllm", found).startswith(INSTALLED)
    assert {row["block_size"] for row in found["answer"]["groups"]} == {528}
