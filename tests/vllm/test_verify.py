"""Tests of ``kvoxide verify`` in whole processes: a vendor's build of vLLM that decides the same,
one that does not, another plugin's code, an interruption, and no vLLM at all."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of, vendor_package
from tests.testing.vllm_releases import NEWEST

from .test_processes import CONSTRUCT, NATIVE, PATCHING_PLUGIN, STOCK, doctor, run, without_vllm

RELEASE = NEWEST
KVOXIDE = "from kvoxide.cli import main; main(prog_name='kvoxide')\n"
# The process with vLLM's code is a preloaded one.
PRELOADED = """
import os
from types import SimpleNamespace
from kvoxide.lab.verify import process
from tests.testing import preloaded

def start(command):
    arguments = command[command.index("-m"):]
    return preloaded.start(arguments, dict(os.environ), files=[0, 1, 2])

process.subprocess = SimpleNamespace(Popen=start)
"""


def verify(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return preloaded.run(["-m", "kvoxide.lab.verify", *arguments], env)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment, with a folder for certificates in ``tmp_path``, and one for
    differences."""
    (tmp_path / "temporary").mkdir()
    return {
        **environment_of(RELEASE, tmp_path),
        "KVOXIDE_CERTIFICATES": str(tmp_path / "certificates"),
        "TMPDIR": str(tmp_path / "temporary"),
    }


def change(core: Path, file: str, old: str, new: str) -> None:
    text = (core / file).read_text()
    assert old in text
    (core / file).write_text(text.replace(old, new, 1))


def test_a_build_that_decides_the_same_is_verified_and_accepted(
    env: dict[str, str], tmp_path: Path
) -> None:
    core = vendor_package(tmp_path, RELEASE)
    change(core, "block_pool.py", "ref_cnt += 1", "ref_cnt += 2 - 1")
    done = verify(env, "--seconds", "5", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"vLLM {RELEASE}; kvoxide follows the rules of vLLM {RELEASE}; seed 1" in done.stdout
    said = re.search(r"Verified: ([\d,]+) calls do not differ", done.stdout)
    assert said is not None
    num_calls = int(said[1].replace(",", ""))
    (path,) = (tmp_path / "certificates").iterdir()
    written = json.loads(path.read_text())
    assert sum(written["calls"].values()) == num_calls > 1_000
    assert "full_attention" in written["kinds"]

    assert STOCK in run(CONSTRUCT + "construct()", env).stdout
    accepting = {**env, "KVOXIDE_ACCEPT": "verified"}
    done = run(CONSTRUCT + "construct()", accepting)
    assert NATIVE in done.stdout, done.stdout + done.stderr
    verdict = f"not a known release, but verified with {num_calls} calls"
    done = doctor(accepting)
    assert done.returncode == 0, done.stdout
    assert verdict in done.stdout

    path.write_text(path.read_text().replace("full_attention", "mamba"))
    done = doctor(accepting)
    assert done.returncode == 1, done.stdout
    assert "was edited" in done.stdout


def test_a_build_that_decides_differently_is_named_and_played_again(
    env: dict[str, str], tmp_path: Path
) -> None:
    core = vendor_package(tmp_path, RELEASE)
    change(core, "kv_cache_utils.py", "def prepend_n(self", "def put_first_n(self")
    change(core, "kv_cache_utils.py", "def append_n(self", "def prepend_n(self")
    change(core, "kv_cache_utils.py", "def put_first_n(self", "def append_n(self")
    done = verify(env, "--seconds", "60", "--seed", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"Call [\d,]+ differs \(seed 1; ", done.stdout)
    assert "free_queue differs\n  vLLM:    " in done.stdout
    assert not (tmp_path / "certificates").exists()
    (path,) = (tmp_path / "temporary").glob("*.json")
    assert f"kvoxide verify --replay {path}" in done.stdout
    again = verify(env, "--replay", str(path))
    assert again.returncode == 1, again.stdout + again.stderr
    assert again.stdout in done.stdout


def test_another_plugins_code_is_not_verified(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "patching_plugin_of_test.py").write_text(PATCHING_PLUGIN)
    plugins = {"z_last": "patching_plugin_of_test:register"}
    patched = {**env, "PYTHONPATH": environment_of(RELEASE, tmp_path / "p", plugins)["PYTHONPATH"]}
    done = verify({**patched, "PYTHONPATH": f"{patched['PYTHONPATH']}:{tmp_path}"})
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Not verified: another plugin changed vLLM's code" in done.stderr
    assert "BlockPool is replaced by patching_plugin_of_test" in done.stderr
    assert not (tmp_path / "certificates").exists()


def test_an_interruption_writes_nothing(env: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRELOADED + KVOXIDE, "verify"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    while "seed" not in (line := process.stdout.readline()):
        assert line or process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Not verified: the run was interrupted. No certificate was written." in errors
    assert not (tmp_path / "certificates").exists()


def test_without_vllm() -> None:
    command = [sys.executable, "-c", KVOXIDE, "verify"]
    done = subprocess.run(command, env=without_vllm(), capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Not verified: vLLM is not installed here" in done.stderr


def test_a_folder_that_cannot_be_written_is_named_before_the_traffic(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "certificates"
    done = verify({**env, "KVOXIDE_CERTIFICATES": str(folder)}, "--seconds", "600", "--seed", "1")
    assert done.returncode != 0
    assert "seed 1" not in done.stdout, "no traffic ran"
    assert f"the certificate cannot be written to {folder}: Not a directory" in done.stderr
    assert "set KVOXIDE_CERTIFICATES to a writable folder" in done.stderr
