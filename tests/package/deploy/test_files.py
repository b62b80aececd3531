"""The files for Compose and for vLLM's production-stack chart agree with the project and with each
other. ``tests/run.sh lint`` compares the Compose file with its published schema."""

import re
from pathlib import Path
from typing import Any

import yaml
from kvoxide.vllm.environment.releases import RELEASES

from tests.testing.paths import DOCS, ROOT

DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose"
NEWEST = next(iter(RELEASES))
OF_VLLM = {"HF_TOKEN", "PYTHONPATH", "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def services() -> dict[str, Any]:
    return dict(load(COMPOSE / "compose.yaml")["services"])


def models() -> list[dict[str, Any]]:
    values = load(DEPLOY / "production-stack/values.yaml")
    return list(values["servingEngineSpec"]["modelSpec"])


def settings() -> set[str]:
    text = (DOCS / "reference/settings.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(KVOXIDE\w*)` ", text, re.MULTILINE))


def test_variables_are_settings() -> None:
    in_compose = set(services()["vllm"]["environment"])
    in_chart = {each["name"] for model in models() for each in model.get("env", [])}
    assert "KVOXIDE" in in_compose & in_chart
    assert (in_compose | in_chart) - OF_VLLM <= settings()


def test_images_have_the_newest_release() -> None:
    dockerfile = (COMPOSE / "Dockerfile").read_text(encoding="utf-8")
    assert f"ARG VLLM_VERSION={NEWEST}\n" in dockerfile
    arguments = services()["vllm"]["build"]["args"]
    assert arguments == {"VLLM_VERSION": f"${{VLLM_VERSION:-{NEWEST}}}"}
    assert {model["tag"] for model in models()} == {f"v{NEWEST}"}
    images = {model["initContainer"]["image"] for model in models() if "initContainer" in model}
    assert images == {f"vllm/vllm-openai:v{NEWEST}"}


def test_folders_that_containers_get_exist() -> None:
    mounted = [
        volume.split(":")[0]
        for service in services().values()
        for volume in service["volumes"]
        if volume.startswith(".")
    ]
    assert len(mounted) == 3
    assert [folder for folder in mounted if not (COMPOSE / folder).is_dir()] == []


def test_the_wheel_comes_from_where_it_is_built() -> None:
    contexts = services()["vllm"]["build"]["additional_contexts"]
    assert (COMPOSE / contexts["wheel"]).resolve() == ROOT / "target/wheel"
    assert "\nout=$PWD/target/wheel\n" in (ROOT / "tests/wheel.sh").read_text(encoding="utf-8")


def test_prometheus_scrapes_the_server_and_grafana_asks_prometheus() -> None:
    config = load(DEPLOY / "prometheus/prometheus.yml")
    (scrape,) = config["scrape_configs"]
    (group,) = scrape["static_configs"]
    assert group["targets"] == ["vllm:8000"]
    assert services()["vllm"]["ports"] == ["127.0.0.1:8000:8000"]
    (source,) = load(COMPOSE / "grafana/datasources/prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    assert services()["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]


def test_grafana_finds_the_dashboard() -> None:
    volumes = dict(volume.split(":")[:2] for volume in services()["grafana"]["volumes"])
    (provider,) = load(COMPOSE / "grafana/dashboards/kvoxide.yaml")["providers"]
    assert volumes["../grafana"] == provider["options"]["path"]
    assert list((COMPOSE / "../grafana").resolve().glob("*.json")) == [
        DEPLOY / "grafana/kvoxide.json"
    ]


def test_the_canary_finds_the_installed_wheel() -> None:
    (canary,) = (model for model in models() if model["podLabels"]["track"] == "canary")
    target = canary["initContainer"]["args"]
    folder = target[target.index("--target") + 1]
    mounts = canary["extraVolumeMounts"]
    assert mounts == canary["initContainer"]["extraVolumeMounts"]
    assert [mount["mountPath"] for mount in mounts] == [folder]
    assert {"name": "PYTHONPATH", "value": folder} in canary["env"]
    assert [volume["name"] for volume in canary["extraVolumes"]] == [mounts[0]["name"]]
