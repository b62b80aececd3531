"""``kvoxide replay --model``: the head of the table, the settings, and groups as text."""

import json
from pathlib import Path

import pytest
from kvoxide.lab.replay.input import PRESETS, groups_text, parse_groups

from tests.testing.pages import replay_page
from tests.testing.traces import kvoxide, line, prompt, replay_json, succeed, write_trace

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
}
# Of 2 layers, 16 tokens, and a key and a value of 256 elements of 2 bytes.
BLOCK = 2 * 16 * 2 * 256 * 2


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return str(folder)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return write_trace(tmp_path / "t.jsonl", line(prompt(0)), line(prompt(0)))


def test_memory_is_blocks(tmp_path: Path, trace: str, model: str) -> None:
    record = replay_json(tmp_path, trace, "--model", model, "--memory", "1GiB,100MB")
    settings = record["settings"]
    assert settings["groups"] == "full:16"
    assert settings["blocks"] == [100 * 10**6 // BLOCK, 2**30 // BLOCK]
    assert settings["model"]["block_bytes"] == BLOCK
    assert settings["model"]["memories"] == [100 * 10**6, 2**30]
    assert {result["hit_tokens"] for result in record["results"]} == {999 // 16 * 16}


def test_blocks_instead_of_memory(tmp_path: Path, trace: str, model: str) -> None:
    options = ("--model", model, "--block-size", "32", "--blocks", "100")
    settings = replay_json(tmp_path, trace, *options)["settings"]
    assert (settings["groups"], settings["blocks"]) == ("full:32", [100])


def test_the_head_says_what_was_derived(trace: str, model: str) -> None:
    options = ("--memory", "0.5GiB", "--tensor-parallel", "2")
    printed = succeed("replay", trace, "--model", model, *options).stdout
    assert "LlamaForCausalLM: 0.50 GiB of each rank; 16,384 bytes per block" in printed
    assert "1 x full_attention, blocks of 16 tokens, 2 layers" in printed
    assert "pool of 32,768 blocks" in printed
    windows = json.dumps({**LLAMA, "sliding_window": 64})
    (Path(model) / "config.json").write_text(windows.replace("Llama", "Mistral"))
    printed = succeed("replay", trace, "--model", model, "--no-ask-vllm", "--blocks", "500").stdout
    assert "window 64, 2 layers" in printed


def test_page_and_table_say_what_was_in_force(tmp_path: Path, trace: str, model: str) -> None:
    refused = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (Path(model) / "hf_quant_config.json").write_text(json.dumps(refused))
    policies = ("--policy", "fifo", "--policy", "interval=8192")
    options = ("--model", model, "--no-ask-vllm", "--memory", "1GiB", "--kv-cache-dtype", "fp8")
    page, record = replay_page(tmp_path, trace, *options, "--block-size", "32", *policies)
    printed = succeed("replay", trace, *options, "--block-size", "32", *policies)
    told = [
        "format mooncake",
        "LlamaForCausalLM: 1.00 GiB of each rank; 32,768 bytes per block",
        "KV cache in fp8; on a NVIDIA H100 80GB HBM3",
        "vLLM knows no quantization in hf_quant_config.json and ignores the file",
        "1 x full_attention, blocks of 32 tokens, 2 layers",
        "hits in multiples of 32 tokens",
        "policy 'interval=8192': retention_interval is 8192, but no KV cache group has a sliding",
    ]
    of_page = " ".join(page.texts["dd"])
    assert not [text for text in told if text not in printed.output]
    assert not [text for text in told if text.removeprefix("format ") not in of_page]
    assert record["settings"]["hit_tokens"] == record["settings"]["model"]["hit_tokens"] == 32


@pytest.mark.parametrize(
    "text", [preset for preset in PRESETS.values() if "uncached" not in preset]
)
def test_groups_as_text(text: str) -> None:
    assert groups_text(parse_groups(text).specs) == text


def test_a_model_without_prefix_caching_hits_nothing(tmp_path: Path, trace: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "is_encoder_decoder": True}))
    options = ("--model", tmp_path, "--blocks", "100", "--max-batched-tokens", "8192")
    record = replay_json(tmp_path, trace, *options)
    assert (record["settings"]["prefix_caching"], record["settings"]["hit_tokens"]) == (False, None)
    assert {result["hit_tokens"] for result in record["results"]} == {0}
    result = record["results"][0]
    assert (result["requests"], result["rejected_requests"]) == (2, 0)
    printed = succeed("replay", trace, *options).stdout
    assert "vLLM disables prefix caching for this model by default, so nothing is hit" in printed
    assert "; prefix caching off; pool of 100 blocks" in printed
    wanted = replay_json(tmp_path, trace, *options, "--enable-prefix-caching")
    assert {result["hit_tokens"] for result in wanted["results"]} == {992}


def test_prefix_caching_can_be_switched_off(tmp_path: Path, trace: str, model: str) -> None:
    off = "--no-enable-prefix-caching"
    for options in ((), ("--preset", "qwen3-next"), ("--model", model, "--memory", "1GiB")):
        record = replay_json(tmp_path, trace, *options, off, "--step-time", "base=1ms")
        assert {result["hit_tokens"] for result in record["results"]} == {0}, options
        assert {result["rejected_requests"] for result in record["results"]} == {0}
    lost = replay_json(tmp_path, trace, off)["results"][0]
    assert lost["evicted_full_share"] == 0.0
    assert lost["never_cached_share"] == pytest.approx(992 / 2000)
    done = kvoxide("replay", trace, off, "--bound")
    assert (done.exit_code, "--bound needs prefix caching" in done.output) == (2, True)
