"""Tests of kvoxide's metrics in the page that a server shows to Prometheus."""

import random
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from kvoxide import __version__
from kvoxide.vllm.metrics.definitions import METRICS, PARTS

from tests.testing.vllm_environments import ON_EACH_RELEASE, write_plugins
from tests.testing.vllm_releases import INSTALLED, NEWEST

from .jobs import Job, offloaded
from .processes import engine_environment, engine_paths
from .server import ONE_PROCESS, ONE_PROCESS_VARIABLES, Server, flags, serving
from .test_http import Client, Service
from .workload import random_tokens

MODEL: Final = "gemma"
PAGE_TIMEOUT: Final = 20
ROUNDS: Final = 2
PROMPTS: Final = 12
# A pool in which some of the prompts are evicted, and CPU memory that holds them.
POOL: Final = {"num_gpu_blocks_override": 150}
OFFLOADING: Final = offloaded(Job(MODEL), megabytes=2).options

# Metrics that a server without shadow mode does not have.
NOT_HERE: Final = {
    "kvoxide_shadow_calls_total",
    "kvoxide_shadow_differences_total",
}

Samples = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]


@contextmanager
def started(
    release: str,
    models: Path,
    folder: Path,
    mode: str = "adaptive",
    *,
    num_ranks: int = 1,
    num_api_servers: int = 1,
    offloads: bool = False,
    variables: dict[str, str] | None = None,
) -> Iterator[tuple[Server, Client]]:
    """Start a server and wait until it serves. With ``variables`` it is a new Python."""
    options = {**POOL, **ONE_PROCESS, "data_parallel_size": num_ranks}
    options["api_server_count"] = num_api_servers
    if offloads:
        options["kv_transfer_config"] = as_json(OFFLOADING["kv_transfer_config"])
    is_new, log = variables is not None, folder / "log"
    variables = {**ONE_PROCESS_VARIABLES, **(variables or {})}
    with serving(MODEL, mode, release, models, log, options, variables, is_new=is_new) as server:
        server.wait_until_it_serves()
        yield server, Client(server.url, Service(MODEL, num_ranks=num_ranks))


def as_json(value: Any) -> str:
    return str(import_module("json").dumps(value))


def samples(server: Server) -> Samples:
    """Return kvoxide's samples of the page: by name, then by labels."""
    parse = import_module("prometheus_client.parser").text_string_to_metric_families
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in parse(server.get("/metrics")):
        for sample in family.samples if family.name.startswith("kvoxide") else ():
            labels = {name: value for name, value in sample.labels.items() if name != "model_name"}
            assert sample.labels["model_name"] == MODEL
            found.setdefault(sample.name, {})[tuple(sorted(labels.items()))] = sample.value
    return found


def total(found: Samples, name: str, **labels: str) -> float:
    """Return the sum of a metric over all series with these labels."""
    wanted = set(labels.items())
    return sum(value for each, value in found.get(name, {}).items() if wanted <= set(each))


def wait_for(server: Server, name: str, at_least: float = 1, **labels: str) -> Samples:
    """Return the samples as soon as a metric has a value."""
    deadline = time.monotonic() + PAGE_TIMEOUT
    while total(found := samples(server), name, **labels) < at_least:
        assert time.monotonic() < deadline, server.get("/metrics") + server.running.end_of_log()
        time.sleep(0.1)
    return found


def chat(client: Client) -> None:
    """Ask prompts in turn, so that each was evicted from the GPU when it comes again."""
    rng = random.Random(1)
    prompts = [random_tokens(rng, 300) for _ in range(PROMPTS)]
    for _ in range(ROUNDS):
        for number, prompt in enumerate(prompts):
            client.ask(number, prompt, max_tokens=2)


def check_page(found: Samples, release: str, engines: set[str]) -> None:
    """Check that each engine has each metric, and that metrics agree."""
    for metric in METRICS:
        ending = "_count" if metric.kind == "histogram" else ""
        series = found.get(metric.name + ending, {})
        if metric.name in NOT_HERE:
            assert not series
            continue
        assert {dict(labels)["engine"] for labels in series} == engines, metric.name
        for label, values in metric.labels.items():
            assert {dict(labels)[label] for labels in series} <= set(values) or not values
    for engine in engines:
        (info,) = (dict(labels) for labels in found["kvoxide_info"] if ("engine", engine) in labels)
        assert info["version"] == __version__
        assert (info["vllm"], info["code_of"]) == (release, release)
        assert (info["mode"], info["policy"]) == ("require", "adaptive")
        blocks = total(found, "kvoxide_blocks", engine=engine)
        assert blocks == POOL["num_gpu_blocks_override"] - 1
        assert total(found, "kvoxide_blocks", engine=engine, state="in_use") == 0
        assert total(found, "kvoxide_scoring_function", engine=engine) == 1
        assert {total(found, "kvoxide_active", engine=engine, part=part) for part in PARTS} == {1}
        assert total(found, "kvoxide_evictions_total", engine=engine, kind="full") > 0
        assert total(found, "kvoxide_evictions_total", engine=engine, kind="tail") > 0
        assert total(found, "kvoxide_call_seconds_count", engine=engine) > 0
        assert total(found, "kvoxide_evict_reuse_gap_seconds_count", engine=engine) > 0
        assert total(found, "kvoxide_standstill", engine=engine) == 0
    assert total(found, "kvoxide_prompt_tokens_total", outcome="first_time") > 0
    assert total(found, "kvoxide_prompt_tokens_total", outcome="hit_host") > 0
    assert total(found, "kvoxide_fallbacks_total") == total(found, "kvoxide_poisoned") == 0
    assert total(found, "kvoxide_host_lookups_total", result="hit") > 0
    assert total(found, "kvoxide_host_lookups_total", result="miss") > 0
    assert total(found, "kvoxide_host_loaded_bytes_total") > 0
    stored = total(found, "kvoxide_host_stored_bytes_total")
    used = total(found, "kvoxide_host_used_bytes")
    assert stored >= used > 0
    assert used <= total(found, "kvoxide_host_capacity_bytes") <= len(engines) * (2 << 20)
    assert total(found, "kvoxide_host_pinned_bytes") <= used


def check_nothing_falls(before: Samples, after: Samples) -> None:
    for name, series in before.items():
        for labels, value in series.items() if name.endswith(("_total", "_count")) else ():
            assert after[name][labels] >= value, (name, labels)


def check_server(
    release: str, models: Path, folder: Path, num_ranks: int = 1, num_api_servers: int = 1
) -> None:
    with started(
        release,
        models,
        folder,
        num_ranks=num_ranks,
        num_api_servers=num_api_servers,
        offloads=True,
    ) as (server, client):
        engines = {str(rank) for rank in range(num_ranks)}
        first = wait_for(server, "kvoxide_active", len(PARTS) * num_ranks)
        assert {dict(labels)["engine"] for labels in first["kvoxide_info"]} == engines
        chat(client)
        before = wait_for(server, "kvoxide_host_loaded_bytes_total")
        time.sleep(0.3)
        chat(client)
        time.sleep(0.3)
        client.ask(0, [7] * 10, max_tokens=2)
        client.ask(2, [7] * 10, max_tokens=2)
        time.sleep(0.3)
        after = samples(server)
        check_page(after, release, engines)
        check_nothing_falls(before, after)
        assert server.stop() == 0
        assert "metrics of" not in server.running.log.read_text()


def test_two_api_servers_show_every_metric(models: Path, tmp_path: Path) -> None:
    check_server(NEWEST, models, tmp_path, num_api_servers=2)


@pytest.mark.long
@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("num_api_servers", [1, 2])
@pytest.mark.parametrize("release", [NEWEST, INSTALLED])
def test_ranks_and_api_servers_show_every_metric(
    release: str, num_api_servers: int, num_ranks: int, models: Path, tmp_path: Path
) -> None:
    check_server(release, models, tmp_path, num_ranks, num_api_servers)


# Poisons the manager as soon as a prompt has this many tokens.
POISONING: Final = """
from vllm.v1.core.sched.scheduler import Scheduler

def plant():
    schedule = Scheduler.schedule

    def poisoned(self, *args, **kwargs):
        if any(request.num_prompt_tokens == 13 for request in self.requests.values()):
            self.kv_cache_manager.engine.poison("planted by a test")
        return schedule(self, *args, **kwargs)

    Scheduler.schedule = poisoned
"""


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, INSTALLED])
def test_the_page_shows_a_poisoned_manager(release: str, models: Path, tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    write_plugins(plugins, {"plant": "plant_of_test:plant"})
    (plugins / "plant_of_test.py").write_text(POISONING)
    variables = {
        "PYTHONPATH": engine_environment("require", release, models, plugins)["PYTHONPATH"],
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1",
    }
    with started(release, models, tmp_path, variables=variables) as (server, client):
        client.ask(0, [7] * 12, max_tokens=2)
        healthy = wait_for(server, "kvoxide_active", part="manager")
        assert total(healthy, "kvoxide_poisoned") == 0
        with suppress(import_module("openai").APIError):
            client.ask(0, [7] * 13, max_tokens=2)
        found = wait_for(server, "kvoxide_poisoned")
        assert total(found, "kvoxide_active", part="manager") == 0
        check_nothing_falls(healthy, found)


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, INSTALLED])
def test_the_page_shows_a_changed_vllm(release: str, models: Path, tmp_path: Path) -> None:
    changed = changed_vllm(release, tmp_path / "changed")
    paths = engine_environment("auto", release, models)["PYTHONPATH"]
    variables = {"PYTHONPATH": f"{changed}:{paths}"}
    with started(release, models, tmp_path, "auto", variables=variables) as (server, client):
        found = wait_for(server, "kvoxide_fallbacks_total", reason="changed_vllm")
        assert {total(found, "kvoxide_active", part=part) for part in PARTS} == {0}
        (info,) = map(dict, found["kvoxide_info"])
        assert (info["policy"], info["code_of"]) == ("vllm", "unknown")
        client.ask(0, [7] * 100, max_tokens=2)
        assert wait_for(server, "kvoxide_blocks", state="free")


def changed_vllm(release: str, folder: Path) -> Path:
    """Return a folder with vLLM in which a method of its manager has one more statement."""
    paths = engine_paths(release)
    package = paths[0] / "vllm" if paths else Path(str(import_module("vllm").__path__[0]))
    (folder / "vllm" / "v1").mkdir(parents=True)
    link_all(package, folder / "vllm", without="v1")
    link_all(package / "v1", folder / "vllm" / "v1", without="core")
    core = folder / "vllm" / "v1" / "core"
    shutil.copytree(package / "v1" / "core", core, ignore=shutil.ignore_patterns("__pycache__"))
    manager = core / "kv_cache_manager.py"
    before = "        self.coordinator.free(request.request_id)\n"
    text = manager.read_text()
    assert before in text
    manager.write_text(text.replace(before, f"        pass\n{before}"))
    return folder


def link_all(source: Path, target: Path, without: str) -> None:
    for entry in source.iterdir():
        if entry.name not in (without, "__pycache__"):
            (target / entry.name).symlink_to(entry)


@pytest.mark.long
@pytest.mark.parametrize("release", ON_EACH_RELEASE)
@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_the_page_shows_that_vllm_decides(
    mode: str, release: str, models: Path, tmp_path: Path
) -> None:
    with started(release, models, tmp_path, mode) as (server, client):
        client.ask(0, [7] * 100, max_tokens=2)
        found = samples(server)
        assert {total(found, "kvoxide_active", part=part) for part in PARTS} == {0}
        assert len(found["kvoxide_active"]) == len(PARTS)
        (info,) = map(dict, found["kvoxide_info"])
        assert (info["mode"], info["policy"]) == (mode, "vllm")


@pytest.mark.long
def test_a_server_without_statistics_has_none_with_kvoxide(models: Path, tmp_path: Path) -> None:
    options = {**POOL, **ONE_PROCESS, "data_parallel_size": 1, "disable_log_stats": True}
    assert "--disable-log-stats" in list(flags(options))
    log = tmp_path / "log"
    with serving(MODEL, "require", NEWEST, models, log, options, ONE_PROCESS_VARIABLES) as server:
        server.wait_until_it_serves()
        client = Client(server.url, Service(MODEL))
        client.ask(0, [7] * 100, max_tokens=2)
        page = server.get("/metrics")
        assert "kvoxide_" not in page
        assert "vllm:num_requests_running" not in page
