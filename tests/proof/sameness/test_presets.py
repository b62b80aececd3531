"""Tests that the replay's presets of models with recurrent states equal the groups that vLLM
creates for them."""

import pytest
from kvoxide.lab.replay.input import preset_groups

from . import vllm_required
from .state_models import MODELS, block_size, vllm_groups


@pytest.mark.parametrize("name", MODELS)
def test_groups_of_a_preset(name: str) -> None:
    assert vllm_required.RELEASE
    model = MODELS[name]
    size = block_size(model)
    made = [(type(spec).__name__, spec.block_size) for spec in vllm_groups(model, size)]
    classes = {"mamba": "MambaSpec", "full_attention": "FullAttentionSpec"}
    specs = preset_groups(name).specs
    ours = [(classes.get(spec.kind, "MLAAttentionSpec"), spec.block_size) for spec in specs]
    assert ours == made
    exported = {spec.sizes.get("num_prefill_checkpoint_blocks", 0) for spec in specs[:-1]}
    assert exported == {int(model.exports_states)}
