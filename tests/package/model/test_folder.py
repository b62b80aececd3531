"""Tests of the files next to a ``config.json``: what they say about the cache, and which are
refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide import ConfigError
from kvoxide.lab.model import Deployment, plan_model

from .test_plan import COMPRESSED, LLAMA, MODEL_OPT, SCHEME, write

BESIDE = "hf_quant_config.json"
PRODUCER = {"producer": {"name": "modelopt", "version": "0.29.0"}}
HALF, WHOLE = 4 * 4096, 4 * 8192


def model_opt(weights: str = "FP8", cache: str | None = "FP8") -> dict[str, Any]:
    return {**PRODUCER, "quantization": {"quant_algo": weights, "kv_cache_quant_algo": cache}}


@pytest.mark.parametrize(
    ("beside", "block_bytes"),
    [
        (model_opt(), HALF),
        (model_opt("NVFP4"), HALF),
        (model_opt("FP8", None), WHOLE),
        (model_opt("FP8", "INT8"), WHOLE),
        # vLLM ignores this.
        ({"quantization": model_opt()["quantization"]}, WHOLE),
        ({}, WHOLE),
    ],
)
def test_a_checkpoint_of_old_says_beside_its_configuration(
    tmp_path: Path, beside: dict[str, Any], block_bytes: int
) -> None:
    write(write(tmp_path, LLAMA), beside, BESIDE)
    assert plan_model(tmp_path).block_bytes == block_bytes
    assert plan_model(tmp_path / "config.json").block_bytes == block_bytes


def test_adapters_and_defaults_of_sampling_change_nothing(tmp_path: Path) -> None:
    made = plan_model(write(tmp_path, LLAMA))
    write(tmp_path, {"peft_type": "LORA", "r": 16}, "adapter_config.json")
    write(tmp_path, {"max_new_tokens": 3}, "generation_config.json")
    assert plan_model(tmp_path) == made


def test_what_is_beside_another_file_is_not_its_own(tmp_path: Path) -> None:
    write(write(tmp_path, LLAMA, "llama.json"), model_opt(), BESIDE)
    assert plan_model(tmp_path / "llama.json").block_bytes == WHOLE


def test_the_configuration_counts_before_what_is_beside_it(tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": MODEL_OPT}
    write(write(tmp_path, config), model_opt(), BESIDE)
    made = plan_model(tmp_path)
    assert made.block_bytes == WHOLE
    assert made.notes == (
        "hf_quant_config.json has a KV cache in fp8; vLLM reads only quantization_config",
    )


def test_what_says_nothing_that_vllm_reads_is_told(tmp_path: Path) -> None:
    write(write(tmp_path, LLAMA), {"quantization": model_opt()["quantization"]}, BESIDE)
    (note,) = plan_model(tmp_path).notes
    assert note == "vLLM knows no quantization in hf_quant_config.json and ignores the file"


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": MODEL_OPT | {"kv_cache_quant_algo": "NVFP4"}}
    write(write(tmp_path, config), model_opt(), BESIDE)
    with pytest.raises(ConfigError, match=r"in nvfp4, but hf_quant_config.json has one in fp8"):
        plan_model(tmp_path)


@pytest.mark.parametrize(
    ("quantization", "reason"),
    [
        (COMPRESSED | {"kv_cache_scheme": SCHEME | {"type": "int"}}, "num_bits=8, type=int"),
        (COMPRESSED | {"kv_cache_scheme": SCHEME | {"num_bits": 4}}, "num_bits=4, type=float"),
        (COMPRESSED | {"kv_cache_scheme": SCHEME | {"strategy": "token"}}, "strategy token"),
        (COMPRESSED | {"kv_cache_scheme": SCHEME | {"symmetric": False}}, "symmetric False"),
        (MODEL_OPT | {"kv_cache_quant_algo": "NVFP4"}, "LlamaForCausalLM has heads of 64"),
        (model_opt("W4A8"), "Unknown ModelOpt quant algo: W4A8"),
    ],
)
def test_a_cache_that_vllm_refuses(
    tmp_path: Path, quantization: dict[str, Any], reason: str
) -> None:
    write(tmp_path, {**LLAMA, "quantization_config": quantization})
    with pytest.raises(ConfigError, match=reason):
        plan_model(tmp_path, Deployment(gpu="h200"))


def test_a_cache_in_nvfp4_has_half_a_byte_for_an_element_and_a_byte_for_sixteen(
    tmp_path: Path,
) -> None:
    quantized = {"quantization_config": MODEL_OPT | {"kv_cache_quant_algo": "NVFP4"}}
    made = plan_model(write(tmp_path, {**LLAMA, "head_dim": 128, **quantized}))
    assert (made.cache_dtype, made.block_bytes) == ("nvfp4", 4 * 16 * 2 * 2 * (64 + 8))
    seeing = {"architectures": ["Qwen3VLForConditionalGeneration"], "head_dim": 128}
    with pytest.raises(ConfigError, match="only for text models"):
        plan_model(write(tmp_path, {**LLAMA, **seeing, **quantized}))


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "is not JSON"), (b"[]", "is not a JSON object"), (b"\xff", "is not JSON")],
)
def test_a_damaged_file_beside(tmp_path: Path, content: bytes, problem: str) -> None:
    (write(tmp_path, LLAMA) / BESIDE).write_bytes(content)
    with pytest.raises(ConfigError, match=f"{BESIDE} {problem}"):
        plan_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", BESIDE])
def test_a_file_of_a_gigabyte(tmp_path: Path, name: str) -> None:
    write(tmp_path, LLAMA)
    with (tmp_path / name).open("r+b" if name == "config.json" else "wb") as file:
        file.truncate(2**30)
    with pytest.raises(ConfigError, match=f"{name} has 1,073,741,824 bytes"):
        plan_model(tmp_path)


def test_links(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", LLAMA)
    (tmp_path / "elsewhere.json").write_text(json.dumps(model_opt()))
    (folder / BESIDE).symlink_to("../elsewhere.json")
    with pytest.raises(ConfigError, match=r"links to .*elsewhere\.json, outside of the model's"):
        plan_model(folder)
    (folder / BESIDE).unlink()
    (folder / BESIDE).symlink_to("nothing.json")
    with pytest.raises(ConfigError, match=f"{BESIDE} cannot be read"):
        plan_model(folder)
    write(folder, model_opt(), "inside.json")
    (folder / BESIDE).unlink()
    (folder / BESIDE).symlink_to("inside.json")
    assert plan_model(folder).block_bytes == HALF


def test_a_snapshot_of_hugging_faces_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for name, values in (("config.json", LLAMA), (BESIDE, model_opt())):
        write(tmp_path / "blobs", values, name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    assert plan_model(snapshot).block_bytes == HALF


@pytest.mark.parametrize("names", [{}, {"architectures": None}, {"architectures": []}])
def test_a_configuration_that_names_no_class_is_known_by_its_type(
    tmp_path: Path, names: dict[str, Any]
) -> None:
    fields = {name: value for name, value in LLAMA.items() if name != "architectures"}
    write(tmp_path, {**fields, **names})
    made = plan_model(tmp_path)
    assert (made.architecture, made.block_bytes) == ("LlamaModel", WHOLE)
    write(tmp_path, {**fields, **names, "model_type": "orion"})
    with pytest.raises(
        ConfigError, match=r"no model class, and Transformers has none for the model_type 'ori"
    ):
        plan_model(tmp_path)


def test_without_vllm_one_kind_of_gpu_is_known(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    assert plan_model(tmp_path, Deployment(gpu="h20")) is not None
    with pytest.raises(
        ConfigError, match="--gpu is b200; without vLLM, kvoxide knows block sizes only for h100"
    ):
        plan_model(tmp_path, Deployment(gpu="b200"))
    with pytest.raises(ConfigError, match="the GPU 'tpu' is unknown; it can be a100"):
        Deployment(gpu="tpu")
