"""Which layers a model has: a function for each class of a model that vLLM can load.

``attention``, ``latent``, ``compressed`` and ``hybrid`` read what a configuration says of its
layers and return their caches, in the order of the layers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kvoxide.model.config import Config, UnknownModelError
from kvoxide.model.deployment import Deployment
from kvoxide.model.families.attention import (
    attention,
    full_every,
    gemma_4,
    gpt_oss_windows,
    listed_windows,
    llama_4,
    qwen_windows,
)
from kvoxide.model.families.compressed import compressed
from kvoxide.model.families.hybrid import (
    falcon_h1,
    gated_delta_net,
    granite_4,
    jamba,
    kimi_linear,
    lfm2,
    nemotron_h,
)
from kvoxide.model.families.latent import indexed, latent
from kvoxide.model.layers import Layers


@dataclass(frozen=True)
class Kernels:
    """What the attention kernels that vLLM takes on a Hopper GPU ask of a block, in tokens.

    ``quantized_block`` is for fp8 caches. ``state_alignment`` is where the kernels of states can
    export one inside a chunk, and ``least_hybrid_block`` what they ask of a block beside states.
    ``is_packed`` is whether layers of several page sizes lie side by side in a block.
    """

    block: int = 16
    quantized_block: int = 16
    state_alignment: int = 1
    least_hybrid_block: int = 1
    is_packed: bool = False


@dataclass(frozen=True)
class Family:
    """The layers of a model, and the kernels that they run with."""

    layers: Callable[[Config, Deployment], Layers]
    kernels: Kernels = Kernels()


_LISTED: Final = Family(attention(listed_windows))
_QWEN: Final = Family(attention(qwen_windows))
_GEMMA_3: Final = Family(attention(full_every()))
# Latent attention in fp8 has kernels of its own.
_LATENT: Final = Family(latent, Kernels(quantized_block=64))
_GATED_DELTA_NET: Final = Family(gated_delta_net, Kernels(state_alignment=64))

FAMILIES: Final[Mapping[str, Family]] = {
    "Cohere2ForCausalLM": Family(attention(full_every(extra=1))),
    "DeepseekV2ForCausalLM": _LATENT,
    "DeepseekV3ForCausalLM": _LATENT,
    "DeepseekV32ForCausalLM": Family(indexed, Kernels(block=64, quantized_block=64)),
    "DeepseekV4ForCausalLM": Family(
        compressed, Kernels(block=256, quantized_block=256, is_packed=True)
    ),
    "Exaone4ForCausalLM": Family(attention(full_every())),
    "FalconH1ForCausalLM": Family(falcon_h1),
    "Gemma2ForCausalLM": Family(attention(full_every(period=2))),
    "Gemma3ForCausalLM": _GEMMA_3,
    "Gemma3ForConditionalGeneration": _GEMMA_3,
    "Gemma4ForCausalLM": Family(gemma_4, Kernels(quantized_block=64)),
    "Gemma4ForConditionalGeneration": Family(gemma_4, Kernels(quantized_block=64)),
    "Glm4MoeForCausalLM": _LISTED,
    "Glm4MoeLiteForCausalLM": _LATENT,
    "GptOssForCausalLM": Family(attention(gpt_oss_windows)),
    "GraniteForCausalLM": _LISTED,
    "GraniteMoeForCausalLM": _LISTED,
    "GraniteMoeHybridForCausalLM": Family(granite_4),
    "JambaForCausalLM": Family(jamba),
    "KimiLinearForCausalLM": Family(
        kimi_linear, Kernels(quantized_block=64, least_hybrid_block=128)
    ),
    "Lfm2ForCausalLM": Family(lfm2),
    "Lfm2MoeForCausalLM": Family(lfm2),
    "Llama4ForCausalLM": Family(llama_4),
    "Llama4ForConditionalGeneration": Family(llama_4),
    "LlamaForCausalLM": _LISTED,
    "MiniMaxM2ForCausalLM": _LISTED,
    "Mistral3ForConditionalGeneration": _LISTED,
    "MistralForCausalLM": _LISTED,
    "MixtralForCausalLM": _LISTED,
    "NemotronHForCausalLM": Family(nemotron_h),
    "OlmoeForCausalLM": _LISTED,
    "Phi3ForCausalLM": _LISTED,
    "Qwen2ForCausalLM": _QWEN,
    "Qwen2MoeForCausalLM": _QWEN,
    "Qwen3ForCausalLM": _QWEN,
    "Qwen3MoeForCausalLM": _QWEN,
    "Qwen3NextForCausalLM": _GATED_DELTA_NET,
    "Qwen3VLForConditionalGeneration": _LISTED,
    "Qwen3_5ForCausalLM": _GATED_DELTA_NET,
    "Qwen3_5ForConditionalGeneration": _GATED_DELTA_NET,
    "Qwen3_5MoeForConditionalGeneration": _GATED_DELTA_NET,
}


def family_of(architecture: str) -> Family:
    """The family of a class of a model.

    Raises :class:`UnknownModelError` for an unknown class, which names the known ones.
    """
    if architecture not in FAMILIES:
        raise UnknownModelError(
            f"the model is a {architecture}, which is unknown here; known are"
            f" {', '.join(FAMILIES)}. Ask vLLM where it is installed, or give its groups with"
            " --groups"
        )
    return FAMILIES[architecture]
