"""Tests of the use of vLLM's answers. ``tests/vllm/models`` asks a real vLLM."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide import ConfigError, UnsupportedGroupError
from kvoxide.lab.model import Deployment, read_model
from kvoxide.lab.model.from_vllm import NotAskedError, VllmPlan, asking
from kvoxide.lab.model.from_vllm.process import judged
from kvoxide.lab.model.release import RELEASE

from tests.testing.traces import kvoxide, line, prompt, succeed, write_trace

from .test_plan import LLAMA, plan, write

GROUP = {
    "kind": "full_attention",
    "is_native": True,
    "block_size": 32,
    "sizes": {},
    "prefix_cacheable": None,
    "page_bytes": 1024,
    "layers": 2,
}
WINDOW = {**GROUP, "kind": "sliding_window", "sizes": {"sliding_window": 100}}
STATES = {**GROUP, "kind": "mamba", "sizes": {"num_prefill_checkpoint_blocks": 0}}
ANSWER: dict[str, Any] = {
    "vllm": "0.99.0",
    "architecture": "NewForCausalLM",
    "dtype": "bfloat16",
    "cache_dtype": "auto",
    "has_prefix_caching": True,
    "max_model_len": 1024,
    "groups": [GROUP, WINDOW, WINDOW],
    "block_bytes": 2048,
    "request_bytes": 40 * 2048,
    "hash_tokens": 32,
    "hit_tokens": 32,
}


class Asked:
    """Replaces the process that asks vLLM. It answers, and notes the questions."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.questions: list[tuple[dict[str, bytes], str, dict[str, Any]]] = []

    def __call__(
        self, files: dict[str, bytes], gpu: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        self.questions.append((files, gpu, options))
        return self.answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    stand_in = Asked(dict(ANSWER))
    monkeypatch.setattr(asking, "_asked", stand_in)
    monkeypatch.setattr(asking, "is_installed", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return stand_in


NEW = {**LLAMA, "architectures": ["NewForCausalLM"], "model_type": "new"}


def test_an_answer_is_a_plan(tmp_path: Path, asked: Asked) -> None:
    made = read_model(write(tmp_path / "new", NEW), Deployment(tensor_parallel=2), ask=True)
    assert isinstance(made, VllmPlan)
    assert made.describe() == [
        "1 x full_attention, blocks of 32 tokens, 2 layers",
        "2 x sliding_window, blocks of 32 tokens, window 100, 2 layers",
    ]
    assert [spec.sliding_window for spec in made.kv_cache_groups] == [None, 100, 100]
    assert (made.cache_dtype, made.hit_tokens, made.layers_per_group) == ("bfloat16", 32, [2, 2, 2])
    assert made.num_blocks(41 * 2048) == 41
    with pytest.raises(ConfigError, match=r"hold 40 blocks .* 1,024 needs 40 and the null block"):
        made.num_blocks(41 * 2048 - 1)
    ((files, gpu, options),) = asked.questions
    assert (list(files), gpu) == (["config.json"], "h100")
    assert options == {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "kv_cache_dtype": "auto",
        "max_num_batched_tokens": 8192,
    }


def test_a_state_for_each_request(tmp_path: Path, asked: Asked) -> None:
    asked.answer["groups"] = [GROUP, STATES]
    made = read_model(write(tmp_path / "new", NEW), Deployment(max_num_seqs=64), ask=True)
    assert made.num_blocks(64 * 2048) == 64
    with pytest.raises(ConfigError, match=r"max_num_seqs \(64\) exceeds available Mamba cache"):
        made.num_blocks(64 * 2048 - 1)


def test_each_question_is_asked_once(tmp_path: Path, asked: Asked) -> None:
    folder = write(tmp_path / "new", NEW)
    first = read_model(folder, ask=True)
    assert read_model(folder / "config.json", ask=True) == first
    assert len(asked.questions) == 1
    read_model(folder, Deployment(gpu="b200"), ask=True)
    read_model(folder, Deployment(block_size=64), ask=True)
    write(folder, {"max_new_tokens": 3}, "generation_config.json")
    read_model(folder, ask=True)
    assert [list(files)[1:] for files, _, _ in asked.questions] == [
        [],
        [],
        [],
        ["generation_config.json"],
    ]
    for file in (tmp_path / "cache").rglob("*.json"):
        file.write_text("{")
    read_model(folder, ask=True)
    assert len(asked.questions) == 5


def test_what_vllm_refuses(tmp_path: Path, asked: Asked) -> None:
    asked.answer = {"vllm": "0.99.0", "refused": "No room"}
    for ask in (True, None):
        with pytest.raises(ConfigError, match=r"vLLM 0.99.0 refuses to start: No room"):
            read_model(write(tmp_path / "new", NEW), ask=ask)


def test_a_package_that_is_missing_here_is_no_refusal() -> None:
    reasons = "{FLASHINFER: [ModuleNotFoundError: No module named 'flashinfer'], FLASH_ATTN: [no]}"
    assert judged(reasons) == {"failed": "No module named 'flashinfer'"}
    assert judged("no room") == {"refused": "no room"}


@pytest.mark.parametrize(
    ("reason", "cause", "failed"),
    [
        (
            "Model architectures ['DeepseekV4ForCausalLM'] failed to be inspected.",
            "ModuleNotFoundError: No module named 'vllm.third_party.flashmla'",
            "No module named 'vllm.third_party.flashmla'",
        ),
        ("Model architectures ['X'] failed to be inspected.", "OSError: gone", "OSError: gone"),
        ("'_OpNamespace' '_C' object has no attribute 'gelu'", "", None),
        ("Torch not compiled with CUDA enabled", "", None),
        ("Could not run 'aten::item' with arguments from the 'Meta' backend", "", None),
        ("libcuda.so.1: cannot open shared object file", "", None),
        ("odd", "cannot import name 'x' from 'vllm._C'", "cannot import name 'x' from 'vllm._C'"),
    ],
)
def test_inability_to_load_class_is_no_refusal(reason: str, cause: str, failed: str | None) -> None:
    assert judged(reason, cause) == {"failed": failed or reason}


def test_a_vllm_that_cannot_be_asked(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvoxide.lab.model.reader.is_installed", lambda: True)
    asked.answer = {"failed": "ImportError: libcuda"}
    folder = write(tmp_path / "llama", LLAMA)
    with pytest.raises(
        NotAskedError, match="cannot load the model on this machine: ImportError: libcuda"
    ):
        read_model(folder, ask=True)
    made = read_model(folder)
    assert made.block_bytes == plan(tmp_path / "again", LLAMA).block_bytes
    (note,) = made.notes
    assert note == (
        "vLLM cannot load the model on this machine: ImportError: libcuda."
        f" kvoxide used its own rules for vLLM {RELEASE} on a Hopper GPU"
    )
    new = write(tmp_path / "new", NEW)
    with pytest.raises(ConfigError, match=r"NewForCausalLM.*ImportError: libcuda"):
        read_model(new)
    assert len(asked.questions) == 3


def test_files_are_checked_before_vllm_reads_them(tmp_path: Path, asked: Asked) -> None:
    folder = write(tmp_path / "new", NEW)
    (folder / "generation_config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"generation_config.json is not a JSON object"):
        read_model(folder, ask=True)
    assert not asked.questions


def test_without_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("asking", "reader"):
        part = "from_vllm.asking" if name == "asking" else name
        monkeypatch.setattr(f"kvoxide.lab.model.{part}.is_installed", lambda: False)
    folder = write(tmp_path / "llama", LLAMA)
    assert read_model(folder).asked == ""
    with pytest.raises(NotAskedError, match="vLLM is not installed here"):
        read_model(folder, ask=True)


def test_a_kind_that_kvoxide_has_not(tmp_path: Path, asked: Asked) -> None:
    asked.answer["groups"] = [{**GROUP, "kind": "QuantumSpec", "is_native": False}]
    made = read_model(write(tmp_path / "new", NEW), ask=True)
    with pytest.raises(UnsupportedGroupError, match="for vLLM's QuantumSpec"):
        _ = made.kv_cache_groups


def test_a_replay_says_who_answered(tmp_path: Path, asked: Asked) -> None:
    asked.answer["has_prefix_caching"] = False
    asked.answer["groups"] = [GROUP, {**WINDOW, "kind": "sliding_window_mla"}]
    asked.answer["groups"][1]["prefix_cacheable"] = False
    trace = write_trace(tmp_path / "trace.jsonl", line(prompt(0, 100), 3))
    path = tmp_path / "replay.json"
    folder = write(tmp_path / "new", NEW)
    arguments: list[str | Path] = ["replay", trace, "--model", folder, "--memory", "1MiB"]
    output = succeed(*arguments, "--ask-vllm", "--gpu", "H100", "--json", path).output
    assert "KV cache in bfloat16; on a NVIDIA H100 80GB HBM3; answered by vLLM 0.99.0" in output
    assert "vLLM 0.99.0 disables prefix caching for this model" in output
    assert "groups full:32,swa-mla:32:100:uncached; prefix caching off" in output
    model = json.loads(path.read_bytes())["settings"]["model"]
    assert (model["asked"], model["hit_tokens"], model["gpu"]) == ("vLLM 0.99.0", None, "h100")
    refused = kvoxide(*arguments, "--no-ask-vllm")
    assert "does not know the model class NewForCausalLM" in refused.output
