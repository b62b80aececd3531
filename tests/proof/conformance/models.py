"""The configurations of models that vLLM's own tests name. Offline, vLLM reads a folder of that
name below the current folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_OPT: Final = {"vocab_size": 50_272, "max_position_embeddings": 2_048}


def write_models(folder: Path) -> None:
    """Write ``config.json`` files below a folder; no weights are needed."""
    for name, (architecture, make) in _models().items():
        config = make()
        config.architectures = [architecture]
        (folder / name).mkdir(parents=True, exist_ok=True)
        config.save_pretrained(folder / name)


def _models() -> dict[str, tuple[str, Callable[[], Any]]]:
    from transformers import LlamaConfig, OPTConfig, Qwen3Config

    return {
        "facebook/opt-125m": (
            "OPTForCausalLM",
            lambda: OPTConfig(
                **_OPT, hidden_size=768, ffn_dim=3_072, num_hidden_layers=12, num_attention_heads=12
            ),
        ),
        "facebook/opt-350m": (
            "OPTForCausalLM",
            lambda: OPTConfig(
                **_OPT,
                hidden_size=1_024,
                ffn_dim=4_096,
                num_hidden_layers=24,
                num_attention_heads=16,
                word_embed_proj_dim=512,
            ),
        ),
        "Qwen/Qwen3-0.6B": (
            "Qwen3ForCausalLM",
            lambda: Qwen3Config(
                vocab_size=151_936,
                hidden_size=1_024,
                intermediate_size=3_072,
                num_hidden_layers=28,
                num_attention_heads=16,
                num_key_value_heads=8,
                head_dim=128,
                max_position_embeddings=40_960,
                tie_word_embeddings=True,
            ),
        ),
        "hmellor/tiny-random-LlamaForCausalLM": (
            "LlamaForCausalLM",
            lambda: LlamaConfig(
                vocab_size=512,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=2_048,
            ),
        ),
        "llava-hf/llava-1.5-7b-hf": ("LlavaForConditionalGeneration", _llava),
    }


def _llava() -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig

    vision = CLIPVisionConfig(
        hidden_size=1_024,
        intermediate_size=4_096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
        projection_dim=768,
    )
    text = LlamaConfig(
        vocab_size=32_064,
        hidden_size=4_096,
        intermediate_size=11_008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        max_position_embeddings=4_096,
    )
    return LlavaConfig(vision_config=vision, text_config=text, image_token_index=32_000)
