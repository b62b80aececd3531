"""The layers of each model: one function for each class that vLLM can load.

``attention``, ``latent``, ``compressed`` and ``hybrid`` read the layers from a configuration, and
return their caches in the order of the layers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model import rope
from kvoxide.lab.model.config import Config, UnknownModelError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families.attention import (
    attention,
    falcon,
    gemma_3n,
    gemma_4,
    glm_asr,
    granite_speech,
    llama_4,
    mimo_v2,
    minicpm_3,
    minimax_m3,
    multi_query,
    step_3p5,
)
from kvoxide.lab.model.families.compressed import compressed
from kvoxide.lab.model.families.hybrid import (
    falcon_h1,
    gated_delta_net,
    granite_4,
    jamba,
    kimi_linear,
    lfm2,
    lfm2_moe,
    nemotron_h,
    olmo_hybrid,
    qwen_3_5,
)
from kvoxide.lab.model.families.latent import has_indexer, indexed, latent, latent_or_indexed
from kvoxide.lab.model.families.windows import (
    in_all_layers,
    in_other_layers,
    in_some_layers,
    interleaved,
    of_qwen,
    of_several_sizes,
    one_wider,
)
from kvoxide.lab.model.layers import Layers
from kvoxide.lab.model.release import NEXT_STEP


@dataclass(frozen=True)
class Kernels:
    """The block sizes in tokens that the attention kernels require. They are the kernels that vLLM
    chooses on a Hopper GPU.

    ``quantized_block`` is for fp8 caches. ``chosen_block`` is vLLM's own choice.
    ``state_alignment`` is where the kernels of states can export one inside a chunk.
    ``least_hybrid_block`` is the least block size in a model that also has states. With
    ``is_packed``, one block has layers of several page sizes.
    """

    block: int = 16
    quantized_block: int = 16
    chosen_block: int = 1
    state_alignment: int = 1
    least_hybrid_block: int = 1
    is_packed: bool = False


@dataclass(frozen=True)
class Family:
    """The layers of a model, the kernels that they run with, and whether vLLM runs the model in the
    stages of a pipeline.

    A class that takes any language model lists in ``languages`` the ``model_type`` of each for
    which ``layers`` is right. Without ``applies_scheme``, vLLM's class does not pass the
    checkpoint's quantization to its layers. ``cache_dtype`` is the only precision of the cache, if
    there is only one. ``reads`` are fields that the class reads and for which the class of its
    configuration has no default. ``with_indexer`` are the kernels of models that have an indexer.
    Without ``has_longrope``, vLLM's kernels refuse the class with rotary positions of that type.
    """

    layers: Callable[[Config, Deployment], Layers]
    kernels: Kernels = Kernels()
    has_stages: bool = True
    languages: tuple[str, ...] = ()
    applies_scheme: bool = True
    cache_dtype: str = ""
    reads: tuple[str, ...] = ()
    with_indexer: Kernels | None = None
    has_longrope: bool = True

    def kernels_of(self, config: Config) -> Kernels:
        """Return the kernels that a model's layers run with."""
        if self.with_indexer is not None and has_indexer(config):
            return self.with_indexer
        return self.kernels


_LISTED: Final = Family(attention(in_some_layers))
_PLAIN: Final = Family(attention(in_all_layers))
_WITHOUT_SCHEME: Final = Family(attention(in_all_layers), applies_scheme=False)
# Classes that do not read head_dim.
_DERIVING: Final = Family(attention(in_all_layers, derives_head=True))
_QWEN_2: Final = Family(attention(of_qwen, derives_head=True))
_QWEN_3: Final = Family(attention(of_qwen))
_LLAVA: Final = Family(attention(in_some_layers), languages=("llama", "mistral"))
_IDEFICS_3: Final = Family(attention(in_some_layers), has_stages=False, languages=("llama",))
_SEEING_QWEN: Final = Family(attention(of_qwen), languages=("qwen2", "qwen3"))
_HEARING_QWEN: Final = Family(attention(of_qwen, derives_head=True), languages=("qwen2",))
_SPEAKING_GRANITE: Final = Family(granite_speech, languages=("granite",))
_GEMMA_4: Final = Family(gemma_4, Kernels(quantized_block=64))
_COHERE_2: Final = Family(attention(one_wider))
_EXAONE_MOE: Final = Family(attention(of_several_sizes))
_GRANITE_MOE: Final = Family(attention(in_some_layers, derives_head=True))
# Latent attention in fp8 has kernels of its own, and applies no scheme of LLM Compressor.
_LATENT: Final = Family(latent, Kernels(quantized_block=64), applies_scheme=False)
_SPARSE: Final = Kernels(block=64, quantized_block=64)
_INDEXED: Final = Family(indexed, _SPARSE, applies_scheme=False)
_KIMI_LINEAR: Final = Family(
    kimi_linear, Kernels(quantized_block=64, least_hybrid_block=128), applies_scheme=False
)
_DEEPSEEK: Final = replace(_LATENT, layers=latent_or_indexed, with_indexer=_SPARSE)
_MINIMAX_M3: Final = Family(minimax_m3, Kernels(block=64, quantized_block=64, chosen_block=128))
_GATED: Final = Kernels(state_alignment=64)
_QWEN_3_5: Final = Family(qwen_3_5, _GATED)

FAMILIES: Final[Mapping[str, Family]] = {
    "AXK1ForCausalLM": _LATENT,
    "AfmoeForCausalLM": replace(_LISTED, reads=("score_func",)),
    "ApertusForCausalLM": _LISTED,
    "ArceeForCausalLM": _LISTED,
    "AriaForConditionalGeneration": Family(attention(in_some_layers), has_stages=False),
    "AudioFlamingo3ForConditionalGeneration": _HEARING_QWEN,
    "BailingMoeForCausalLM": _WITHOUT_SCHEME,
    "BailingMoeV2ForCausalLM": _WITHOUT_SCHEME,
    "Cohere2ForCausalLM": replace(_COHERE_2, has_longrope=False),
    "Cohere2MoeForCausalLM": _COHERE_2,
    "Cohere2VisionForConditionalGeneration": _COHERE_2,
    "CohereForCausalLM": replace(_PLAIN, has_longrope=False),
    "CwmForCausalLM": _LISTED,
    "DeepseekForCausalLM": _DERIVING,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _INDEXED,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV4ForCausalLM": Family(
        compressed,
        Kernels(block=256, quantized_block=256, is_packed=True),
        cache_dtype="fp8_ds_mla",
    ),
    "DiffusionGemmaForBlockDiffusion": replace(_GEMMA_4, has_stages=False),
    "DotsOCRForCausalLM": _QWEN_2,
    "Ernie4_5ForCausalLM": _LISTED,
    "Ernie4_5_MoeForCausalLM": _PLAIN,
    "Exaone4ForCausalLM": _LISTED,
    "ExaoneForCausalLM": _PLAIN,
    "ExaoneMoEForCausalLM": _EXAONE_MOE,
    "ExaoneMoeForCausalLM": _EXAONE_MOE,
    "FalconForCausalLM": Family(falcon),
    "FalconH1ForCausalLM": Family(falcon_h1),
    "FlexOlmoForCausalLM": _LISTED,
    "GPT2LMHeadModel": _DERIVING,
    "GPTBigCodeForCausalLM": Family(multi_query),
    "GPTJForCausalLM": _DERIVING,
    "GPTNeoXForCausalLM": _LISTED,
    "Gemma2ForCausalLM": _LISTED,
    "Gemma3ForCausalLM": _LISTED,
    "Gemma3ForConditionalGeneration": _LISTED,
    "Gemma3nForCausalLM": Family(gemma_3n, has_stages=False),
    "Gemma4ForCausalLM": _GEMMA_4,
    "Gemma4ForConditionalGeneration": _GEMMA_4,
    "GemmaForCausalLM": _PLAIN,
    "Glm4ForCausalLM": replace(_PLAIN, has_longrope=False),
    "Glm4MoeForCausalLM": replace(_PLAIN, reads=("head_dim",)),
    "Glm4MoeLiteForCausalLM": replace(_DEEPSEEK, reads=("first_k_dense_replace",)),
    "Glm4vForConditionalGeneration": replace(_LISTED, has_longrope=False),
    "Glm4vMoeForConditionalGeneration": _LISTED,
    "GlmAsrForConditionalGeneration": Family(glm_asr, languages=("llama",)),
    "GlmForCausalLM": _LISTED,
    "GlmMoeDsaForCausalLM": _INDEXED,
    "GlmOcrForConditionalGeneration": _LISTED,
    "GptOssForCausalLM": Family(attention(in_other_layers)),
    "GraniteForCausalLM": _LISTED,
    "GraniteMoeForCausalLM": _GRANITE_MOE,
    "GraniteMoeHybridForCausalLM": Family(granite_4),
    "GraniteMoeSWAForCausalLM": _GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": _GRANITE_MOE,
    "GraniteSWAForCausalLM": _LISTED,
    "GraniteSpeechForConditionalGeneration": _SPEAKING_GRANITE,
    "GraniteSpeechPlusForConditionalGeneration": _SPEAKING_GRANITE,
    "HYV3ForCausalLM": replace(_PLAIN, reads=("first_k_dense_replace",)),
    "HunYuanDenseV1ForCausalLM": _LISTED,
    "HyperCLOVAXForCausalLM": _PLAIN,
    "IQuestCoderForCausalLM": _LISTED,
    "Idefics3ForConditionalGeneration": _IDEFICS_3,
    "InternLM2ForCausalLM": _DERIVING,
    "InternLM3ForCausalLM": _LISTED,
    "InternVLForConditionalGeneration": _SEEING_QWEN,
    "Jais2ForCausalLM": _LISTED,
    "JambaForCausalLM": Family(jamba, applies_scheme=False),
    "KimiK25ForConditionalGeneration": _DEEPSEEK,
    "KimiK3ForConditionalGeneration": _KIMI_LINEAR,
    "KimiLinearForCausalLM": _KIMI_LINEAR,
    "KimiVLForConditionalGeneration": _DEEPSEEK,
    "LLaMAForCausalLM": _LISTED,
    "LagunaForCausalLM": _LISTED,
    "Lfm2ForCausalLM": Family(lfm2, applies_scheme=False),
    "Lfm2MoeForCausalLM": Family(lfm2_moe, applies_scheme=False),
    "Llama4ForCausalLM": Family(llama_4),
    "Llama4ForConditionalGeneration": Family(llama_4),
    "LlamaForCausalLM": _LISTED,
    "LlavaForConditionalGeneration": _LLAVA,
    "LlavaNextForConditionalGeneration": _LLAVA,
    "LlavaNextVideoForConditionalGeneration": replace(_LLAVA, languages=("llama",)),
    "LlavaOnevisionForConditionalGeneration": _SEEING_QWEN,
    "MellumForCausalLM": _LISTED,
    "MiMoForCausalLM": _QWEN_2,
    "MiMoV2FlashForCausalLM": Family(mimo_v2),
    "MiMoV2ForCausalLM": Family(mimo_v2),
    "MiniCPM3ForCausalLM": Family(minicpm_3),
    "MiniCPMForCausalLM": _DERIVING,
    "MiniCPMV4_6ForConditionalGeneration": _QWEN_3_5,
    "MiniCPMV4_7ForConditionalGeneration": _QWEN_3_5,
    "MiniMaxM2ForCausalLM": replace(_PLAIN, reads=("rotary_dim",)),
    "MiniMaxM3SparseForCausalLM": _MINIMAX_M3,
    "MiniMaxM3SparseForConditionalGeneration": _MINIMAX_M3,
    "Ministral3ForCausalLM": _LISTED,
    "Mistral3ForConditionalGeneration": _LISTED,
    "MistralForCausalLM": _LISTED,
    "MistralLarge3ForCausalLM": _DEEPSEEK,
    "MixtralForCausalLM": _PLAIN,
    "MuseGlimmerForCausalLM": _LISTED,
    "MuseGlimmerForConditionalGeneration": _LISTED,
    "NanbeigeForCausalLM": _LISTED,
    "NemotronForCausalLM": _PLAIN,
    "NemotronHForCausalLM": Family(nemotron_h),
    "NemotronHPuzzleForCausalLM": Family(nemotron_h),
    "OPTForCausalLM": _DERIVING,
    "Olmo2ForCausalLM": _LISTED,
    "Olmo3ForCausalLM": _LISTED,
    "OlmoForCausalLM": _LISTED,
    "OlmoHybridForCausalLM": Family(olmo_hybrid),
    "OlmoeForCausalLM": _DERIVING,
    "OrionForCausalLM": _DERIVING,
    "PaddleOCRVLForConditionalGeneration": replace(_LISTED, has_stages=False),
    "PaliGemmaForConditionalGeneration": Family(attention(in_all_layers), languages=("gemma",)),
    "PanguEmbeddedForCausalLM": Family(attention(interleaved)),
    "PanguUltraMoEForCausalLM": _LATENT,
    "Param2MoEForCausalLM": _PLAIN,
    "Phi3ForCausalLM": _LISTED,
    "Phi3VForCausalLM": _LISTED,
    "PhiForCausalLM": _LISTED,
    "PhiMoEForCausalLM": _PLAIN,
    "Qwen2AudioForConditionalGeneration": _QWEN_2,
    "Qwen2ForCausalLM": _QWEN_2,
    "Qwen2MoeForCausalLM": _DERIVING,
    "Qwen2VLForConditionalGeneration": _QWEN_2,
    "Qwen2_5_VLForConditionalGeneration": _QWEN_2,
    "Qwen3ForCausalLM": _QWEN_3,
    "Qwen3MoeForCausalLM": _PLAIN,
    "Qwen3NextForCausalLM": Family(gated_delta_net, _GATED),
    "Qwen3VLForConditionalGeneration": _QWEN_3,
    "Qwen3VLMoeForConditionalGeneration": replace(_PLAIN, reads=("norm_topk_prob",)),
    "Qwen3_5ForCausalLM": _QWEN_3_5,
    "Qwen3_5ForConditionalGeneration": _QWEN_3_5,
    "Qwen3_5MoeForCausalLM": _QWEN_3_5,
    "Qwen3_5MoeForConditionalGeneration": _QWEN_3_5,
    "SarvamMLAForCausalLM": _LATENT,
    "SarvamMoEForCausalLM": _PLAIN,
    "SeedOssForCausalLM": _LISTED,
    "SmolLM3ForCausalLM": _LISTED,
    "SmolVLMForConditionalGeneration": _IDEFICS_3,
    "SolarForCausalLM": _PLAIN,
    "StableLmForCausalLM": _DERIVING,
    "Starcoder2ForCausalLM": _LISTED,
    "Step3TextForCausalLM": _WITHOUT_SCHEME,
    "Step3p5ForCausalLM": Family(step_3p5),
    "TeleChat3ForCausalLM": _LISTED,
    "TeleFLMForCausalLM": _LISTED,
    "VaultGemmaForCausalLM": _LISTED,
}
# In the order in which vLLM tries them.
_ENDINGS: Final = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def family_of(config: Config) -> Family:
    """Return the family of a model's class.

    Raises :class:`UnknownModelError` for an unknown class, and names the known ones. Also raises it
    for a language model that is not known in its class.
    """
    architecture = config.architecture
    family = next((FAMILIES[name] for name in _names(architecture) if name in FAMILIES), None)
    if family is None:
        raise UnknownModelError(
            f"kvoxide does not know the model class {architecture}{_similar(architecture)}."
            f" {NEXT_STEP}"
        )
    for name in family.reads:
        if not config.text.has(name):
            raise ConfigError(
                f"{config.text.source} has no {name}. vLLM's {architecture} reads it, and its"
                f" configuration class has no default. Add {name} to the file"
            )
    if not family.has_longrope and "longrope" in rope.types_of(config.text.values):
        raise ConfigError(
            f"{config.text.source}: vLLM does not support longrope positions in a {architecture};"
            " correct rope_scaling"
        )
    language = str(config.text.need("model_type"))
    if family.languages and language not in family.languages:
        raise UnknownModelError(
            f"kvoxide does not know the language model {language} inside a {architecture}; it knows"
            f" {', '.join(family.languages)}. {NEXT_STEP}"
        )
    return family


def _similar(architecture: str) -> str:
    """Return the known classes whose names are most similar."""
    stems = {_stem(name): name for name in FAMILIES}
    names = [stems[stem] for stem in get_close_matches(_stem(architecture), stems, n=3)]
    return f"; similar names that it knows: {', '.join(names)}" if names else ""


def _stem(name: str) -> str:
    return next((name.removesuffix(end) for end in _ENDINGS if name.endswith(end)), name)


def _names(architecture: str) -> list[str]:
    """Return the name of the class, and of the classes that vLLM uses in place of a base class."""
    base = architecture.removesuffix("Model")
    return [architecture, *(base + ending for ending in _ENDINGS if base != architecture)]
