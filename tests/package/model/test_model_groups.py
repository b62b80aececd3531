"""Tests that the kinds of a model's groups are read."""

import json
from pathlib import Path

import pytest
from kvoxide.lab.model import plan_model
from kvoxide.lab.model_groups import read_model_groups
from kvoxide.vllm.doctor import ModelError

from tests.testing.paths import ROOT


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_unreadable_configurations(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_model_groups(tmp_path, ask=False)


def test_a_known_class_is_read_as_it_is_replayed(tmp_path: Path) -> None:
    config = ROOT / "tests/vllm/models/configs/deepseek-v4-flash.json"
    (tmp_path / "config.json").write_bytes(config.read_bytes())
    read = read_model_groups(config, ask=False)
    assert read_model_groups(tmp_path, ask=False) == read
    layers = {group.kind: group.layers for group in read.groups}
    assert layers == {"sliding_window_mla": 105, "mla_attention": 62}
    replayed = plan_model(config)
    assert {group.kind for group in read.groups} == set(replayed.kinds)
    assert sum(group.layers or 0 for group in read.groups) == sum(replayed.layers_per_group)
    assert read.hit_tokens == replayed.hit_tokens == 256


def test_an_unknown_class_has_no_groups(tmp_path: Path) -> None:
    config = {"architectures": ["NewForCausalLM"], "model_type": "new", "sliding_window": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = read_model_groups(tmp_path, ask=False)
    assert (read.groups, read.hit_tokens) == ((), None)
    assert "does not know the model class NewForCausalLM" in read.notes[0]


@pytest.mark.parametrize("name", ["LlamaForCausalLMEagle3", "Eagle3DraftModel", "DeepSeekMTPModel"])
def test_draft_model_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name]}))
    with pytest.raises(
        ModelError, match=f"draft model .{name}.* Name the folder of that other model"
    ):
        read_model_groups(tmp_path)
