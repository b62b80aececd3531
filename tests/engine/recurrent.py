"""Models with recurrent states, as small as the models of ``models``: one for each way to keep a
state.

Their weights are transformers' own, or larger if the states would otherwise not change the tokens.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from .models import COMMON, HIDDEN_SIZE, write_tokenizer

STATE_SIZE = 32
LOG_OF_DECAY = -5
MAMBA2 = {
    "mamba_n_heads": 4,
    "mamba_d_head": HIDDEN_SIZE // 2,
    "mamba_n_groups": 1,
    "mamba_d_state": STATE_SIZE,
    "mamba_expand": 2,
}


def write_recurrent_models(root: Path) -> None:
    import_module("torch").manual_seed(0)
    for name, make in MODELS.items():
        slow_to_forget(make()).save_pretrained(root / name)
        write_tokenizer(root / name)


def slow_to_forget(model: Any) -> Any:
    """Make states last for hundreds of tokens, so that a wrong one changes tokens long after."""
    for name, weights in model.named_parameters():
        if name.endswith("A_log"):
            weights.data.fill_(LOG_OF_DECAY)
    return model


def qwen3_next() -> Any:
    """Return a model whose keys and values of 256 tokens take more than a state. Otherwise vLLM
    makes blocks larger."""
    return model(
        "Qwen3Next",
        layer_types=["linear_attention", "full_attention"],
        num_key_value_heads=2,
        head_dim=64,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=1,
        linear_num_value_heads=1,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=HIDDEN_SIZE,
        shared_expert_intermediate_size=HIDDEN_SIZE,
    )


def granite() -> Any:
    return model(
        "GraniteMoeHybrid",
        layer_types=["mamba", "attention"],
        num_local_experts=0,
        num_experts_per_tok=0,
        shared_intermediate_size=HIDDEN_SIZE,
        position_embedding_type="nope",
        **MAMBA2,
    )


def falcon() -> Any:
    return model("FalconH1", mamba_d_ssm=2 * HIDDEN_SIZE, **MAMBA2)


def lfm2() -> Any:
    return model(
        "Lfm2",
        layer_types=["conv", "full_attention"],
        conv_dim=HIDDEN_SIZE,
        conv_dim_out=HIDDEN_SIZE,
        block_dim=HIDDEN_SIZE,
    )


def mamba2() -> Any:
    return model(
        "Mamba2",
        num_heads=4,
        head_dim=HIDDEN_SIZE // 2,
        state_size=STATE_SIZE,
        n_groups=1,
    )


def model(name: str, **config: Any) -> Any:
    transformers = import_module("transformers")
    settings = {**COMMON, "num_hidden_layers": 2, **config}
    return getattr(transformers, f"{name}ForCausalLM")(
        getattr(transformers, f"{name}Config")(**settings)
    )


MODELS = {
    "qwen3-next": qwen3_next,
    "granite": granite,
    "falcon": falcon,
    "lfm2": lfm2,
    "mamba2": mamba2,
}
