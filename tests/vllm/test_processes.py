"""Tests of the plugin and the doctor in whole processes: the order of imports, broken
installations, second plugins, and engine processes by fork and by spawn."""

import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.paths import TESTS
from tests.testing.vllm_environments import SECOND_IF_LONG, environment_of, vendor_package
from tests.testing.vllm_releases import INSTALLED, NEWEST, RELEASES

CONSTRUCT = """
from vllm.plugins import load_general_plugins
load_general_plugins()
import torch
from vllm.v1.core.sched.scheduler import KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
register_all_kvcache_specs(None)
spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8, dtype=torch.float16)
config = KVCacheConfig(8, [], [KVCacheGroupSpec(["layer"], spec)])
def construct():
    manager = KVCacheManager(config, 64, scheduler_block_size=16, hash_block_size=16)
    print("constructed", type(manager).__module__, flush=True)
"""
NATIVE = "constructed kvoxide.vllm.adapter.manager"
STOCK = "constructed vllm.v1.core.kv_cache_manager"

release = pytest.mark.parametrize("release", SECOND_IF_LONG)


def run(code: str, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds third-party modules imported, but nothing of vLLM or
    kvoxide."""
    return preloaded.run(["-c", code, *arguments], env)


def run_new(code: str, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds nothing imported."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


DOCTOR = "from kvoxide.cli import main; main(prog_name='kvoxide')"
PRELOADED_PROBE = """
import os
from kvoxide.vllm.doctor import probe
from tests.testing import preloaded
probe.subprocess.run = lambda command, **_: preloaded.run(command[1:], dict(os.environ))
"""


def doctor(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the doctor. Neither its process nor its probe's process is new."""
    return run(PRELOADED_PROBE + DOCTOR, env, "doctor", *arguments)


def new_doctor(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run_new(DOCTOR, env, "doctor")


def without_vllm() -> dict[str, str]:
    """Return the variables of a process where ``import vllm`` finds nothing."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _hiding_vllm()))}


def _hiding_vllm() -> list[Path]:
    folder = TESTS / "testing" / "without_vllm"
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [folder, *(path for path in map(Path, given) if not (path / "vllm").is_dir())]


def test_importing_the_plugin_imports_neither_vllm_nor_torch() -> None:
    code = (
        "import sys, kvoxide.vllm.plugin, kvoxide.vllm.doctor, kvoxide.vllm.environment;"
        "print([name for name in ('vllm', 'torch', 'click') if name in sys.modules])"
    )
    assert run_new(code, dict(os.environ)).stdout.strip() == "[]"


@release
def test_registering_imports_no_manager(release: str, tmp_path: Path) -> None:
    code = (
        "import sys; from vllm.plugins import load_general_plugins; load_general_plugins();"
        "print('vllm.v1.core.kv_cache_manager' in sys.modules)"
    )
    done = run(code, environment_of(release, tmp_path))
    assert done.stdout.strip().splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize("mode", ["auto", "shadow"])
def test_servers_import_no_laboratory(mode: str, tmp_path: Path) -> None:
    code = (
        f"import sys{CONSTRUCT}construct()\nimport kvoxide.vllm.offload\n"
        "print([name for name in sys.modules if name.startswith('kvoxide.lab')])"
    )
    settings = {"KVOXIDE": mode, "KVOXIDE_RECORD": str(tmp_path / "recording")}
    done = run(code, {**environment_of(NEWEST, tmp_path), **settings})
    *_, constructed, laboratory = done.stdout.splitlines()
    assert constructed.startswith("constructed kvoxide.vllm."), done.stdout + done.stderr
    assert laboratory == "[]"


@pytest.mark.parametrize(
    ("release", "method"), [(NEWEST, "fork"), (NEWEST, "spawn"), (INSTALLED, "fork")]
)
def test_engine_processes(release: str, method: str, tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text(
        CONSTRUCT
        + "import multiprocessing\n"
        + "if __name__ == '__main__':\n"
        + f"    context = multiprocessing.get_context({method!r})\n"
        + "    process = context.Process(target=construct)\n"
        + "    process.start(); process.join(); construct()\n"
    )
    env = environment_of(release, tmp_path)
    done = preloaded.run([script], env)
    assert done.stdout.splitlines().count(NATIVE) == 2, done.stdout + done.stderr


@release
def test_broken_compiled_module(release: str, tmp_path: Path) -> None:
    broken = "import sys; sys.modules['kvoxide._core'] = None\n"
    env = environment_of(release, tmp_path)
    done = run(broken + CONSTRUCT + "construct()", env)
    assert STOCK in done.stdout, done.stderr
    assert "the compiled module kvoxide._core cannot be imported" in done.stdout + done.stderr
    done = run(broken + CONSTRUCT + "construct()", {**env, "KVOXIDE": "require"})
    assert "UnsupportedError: kvoxide cannot manage the KV cache" in done.stderr


OTHER_PLUGIN = """
def replace_class():
    from vllm.v1.core import kv_cache_manager as module
    from vllm.v1.core.sched import scheduler
    class OtherManager(module.KVCacheManager):
        pass
    module.KVCacheManager = scheduler.KVCacheManager = OtherManager

def replace_new():
    from vllm.v1.core import kv_cache_manager as module
    module.KVCacheManager.__new__ = staticmethod(lambda cls, *args, **kwargs: object.__new__(cls))
"""
SCHEDULER = """
from vllm.plugins import load_general_plugins
load_general_plugins()
from vllm.v1.core.sched import scheduler
class Short(scheduler.Scheduler):
    pass
def init(self):
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    self.kv_cache_manager = KVCacheManager.__new__(KVCacheManager)
checked = scheduler.Scheduler.__init__
index = checked.__code__.co_freevars.index("original")
checked.__closure__[index].cell_contents = init
Short()
print("started")
"""


@pytest.mark.parametrize(
    ("release", "name", "function"),
    [
        (NEWEST, "a_first", "replace_class"),
        (NEWEST, "z_last", "replace_new"),
        pytest.param(INSTALLED, "a_first", "replace_new", marks=pytest.mark.long),
        pytest.param(INSTALLED, "z_last", "replace_class", marks=pytest.mark.long),
    ],
)
def test_second_plugin(release: str, name: str, function: str, tmp_path: Path) -> None:
    (tmp_path / "other_plugin_of_test.py").write_text(OTHER_PLUGIN)
    env = environment_of(release, tmp_path, {name: f"other_plugin_of_test:{function}"})
    done = run(SCHEDULER, env)
    assert "started" in done.stdout, done.stderr
    assert "kvoxide: not active for the KV cache" in done.stdout + done.stderr
    assert "another plugin" in done.stdout + done.stderr
    done = run(SCHEDULER, {**env, "KVOXIDE": "require"})
    assert "UnsupportedError: kvoxide cannot manage the KV cache" in done.stderr
    done = doctor(env)
    assert done.returncode == 1, done.stdout
    assert "another plugin" in done.stdout


UNKNOWN_MODEL = {"architectures": ["QuantumForCausalLM"], "model_type": "llama"}


@release
def test_doctor_of_a_good_environment(release: str, tmp_path: Path) -> None:
    env = environment_of(release, tmp_path)
    done = new_doctor(env) if release == NEWEST else doctor(env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A vLLM server in this environment would use kvoxide." in done.stdout
    (tmp_path / "config.json").write_text(json.dumps(UNKNOWN_MODEL))
    done = doctor(env, "--json", "--no-ask-vllm", "--model", str(tmp_path))
    assert done.returncode == 0, "the class of a model decides nothing about the server"
    report = json.loads(done.stdout)
    assert report["versions"]["vllm"].startswith(release)
    assert [check["name"] for check in report["checks"] if not check["ok"]] == ["model"]
    assert "QuantumForCausalLM" in report["notes"][0]
    assert report["groups"] == []


def test_doctor_without_vllm() -> None:
    done = new_doctor(without_vllm())
    assert done.returncode == 1, done.stderr
    assert "PROBLEM vLLM: vLLM is not installed here" in done.stdout


def test_without_vllm_every_test_module_is_collected_or_skipped() -> None:
    command = ["-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", str(TESTS)]
    done = preloaded.run(command, without_vllm())
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    assert "test_trace_hits" not in done.stdout.split("short test summary")[0]


def test_doctor_with_a_broken_compiled_module() -> None:
    code = (
        "import sys; sys.modules['kvoxide._core'] = None;"
        "from kvoxide.cli import main; main(args=['doctor'])"
    )
    done = run_new(code, without_vllm())
    assert done.returncode == 1, done.stderr
    assert "PROBLEM compiled module: the compiled module kvoxide._core cannot be" in done.stdout


def test_package_without_its_compiled_module_imports_and_says_what_is_wrong() -> None:
    code = "import sys; sys.modules['kvoxide._core'] = None; import kvoxide; kvoxide.Policy"
    done = run_new(code, dict(os.environ))
    assert "ImportError: kvoxide's compiled module is missing or broken" in done.stderr
    code = "import sys; sys.modules['kvoxide._core'] = None; import kvoxide; kvoxide.Other"
    assert (
        "AttributeError: module 'kvoxide' has no attribute 'Other'"
        in run_new(code, dict(os.environ)).stderr
    )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("mode", ["auto", pytest.param("off", marks=pytest.mark.long)])
def test_hasher_of_an_engine_imported_before_the_plugin(
    release: str, mode: str, tmp_path: Path
) -> None:
    code = (
        "import vllm.v1.engine.core as core; from vllm.utils.hashing import sha256;"
        "from vllm.plugins import load_general_plugins; load_general_plugins();"
        "print(core.get_request_block_hasher(16, sha256).__module__)"
    )
    done = run(code, {**environment_of(release, tmp_path), "KVOXIDE": mode})
    expected = "kvoxide.vllm.plugin.hashing" if mode == "auto" else "vllm.v1.core.kv_cache_utils"
    assert done.stdout.splitlines()[-1] == expected, done.stderr


@release
def test_hasher_of_an_engine_imported_after_the_plugin(release: str, tmp_path: Path) -> None:
    code = (
        "from vllm.plugins import load_general_plugins; load_general_plugins();"
        "import vllm.v1.engine.core as core; from vllm.utils.hashing import sha256;"
        "print(core.get_request_block_hasher(16, sha256).__module__)"
    )
    done = run(code, environment_of(release, tmp_path))
    assert done.stdout.splitlines()[-1] == "kvoxide.vllm.plugin.hashing", done.stderr


PATCHING_PLUGIN = """
def register():
    from vllm.v1.core import kv_cache_coordinator as module
    class VendorPool(module.BlockPool):
        pass
    module.BlockPool = VendorPool
"""


@release
def test_a_vendor_build_and_a_plugin_that_patches_it(release: str, tmp_path: Path) -> None:
    (tmp_path / "patching_plugin_of_test.py").write_text(PATCHING_PLUGIN)
    env = environment_of(release, tmp_path, {"z_last": "patching_plugin_of_test:register"})
    core = vendor_package(tmp_path, release)
    # The vendor's comment changes nothing. The plugin, which is loaded last, does.
    pool = core / "block_pool.py"
    pool.write_text("# A vendor's.\n" + pool.read_text())
    done = run(CONSTRUCT + "construct()", env)
    assert STOCK in done.stdout, done.stderr
    said = "kv_cache_coordinator.BlockPool is replaced by patching_plugin_of_test"
    assert said in done.stdout + done.stderr
    alone = {**env, "VLLM_PLUGINS": "kvoxide"}
    done = run(CONSTRUCT + "construct()", alone)
    assert NATIVE in done.stdout, done.stderr

    pool.write_text(pool.read_text().replace("ref_cnt += 1", "ref_cnt += 2", 1))
    done = run(CONSTRUCT + "construct()", {**alone, "KVOXIDE": "require"})
    assert "UnsupportedError: kvoxide cannot manage the KV cache" in done.stderr
    assert "v1/core/block_pool.py: BlockPool.get_new_blocks has changed" in done.stderr
    done = doctor(env)
    assert done.returncode == 1, done.stderr
    assert f"Differences from {release}: v1/core/block_pool.py: BlockPool.get_new" in done.stdout
    assert said in done.stdout

    py_compile.compile(str(pool), cfile=str(pool.with_suffix(".pyc")), doraise=True)
    pool.unlink()
    done = run(CONSTRUCT + "construct()", alone)
    assert STOCK in done.stdout, done.stderr
    assert "block_pool.pyc cannot be read: it is compiled" in done.stdout + done.stderr
