"""Draws requests with everything that a block hash covers."""

import random
from typing import Any, Final

import numpy as np
import torch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

WIDTHS: Final = (
    *(0, 23, 24, 255, 256, 65_535, 65_536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1),
)
NEGATIVE: Final = (-1, -24, -25, -256, -257, -(2**31), -(2**31) - 1, -(2**39), -(2**63))
ODD: Final = (True, 2**63, 2**64, -(2**63) - 1, 2**2_100, np.int64(5), 1.5, None, "text")
"""Tokens that are not plain numbers of 64 bits."""

_PARAMS: Final = SamplingParams(max_tokens=1_000)


def make_request(tokens: Any, hasher: Any = None, **options: Any) -> Any:
    """Return a request of vLLM's whose blocks are hashed by ``hasher``."""
    return Request("r", tokens, _PARAMS, None, block_hasher=hasher, **options)


def draw_token(rng: random.Random) -> int:
    """Return a token of any width that the engine encodes."""
    if rng.random() < 0.8:
        return rng.randrange(200_000)
    return rng.choice((*WIDTHS, *NEGATIVE))


def draw_options(rng: random.Random, num_tokens: int) -> dict[str, Any]:
    """Return options with every kind of extra key, or with none. Names are one object or
    several."""
    options: dict[str, Any] = {}
    name = rng.choice(("n", "ä-name", "mm", "x" * 300))
    if rng.random() < 0.3:
        lora = LoRARequest(_shared_or_not(rng, name), 1, _shared_or_not(rng, name))
        options["lora_request"] = lora
    if rng.random() < 0.3:
        options["cache_salt"] = rng.choice((name, "", "salt", "s" * 70_000))
    if rng.random() < 0.3:
        options["mm_features"] = _draw_images(rng, name, num_tokens)
    if rng.random() < 0.2:
        values = [[rng.random(), rng.random()] for _ in range(num_tokens)]
        options["prompt_embeds"] = torch.tensor(values)
    return options


def _draw_images(rng: random.Random, name: str, num_tokens: int) -> list[Any]:
    images: list[Any] = []
    offset = rng.randrange(5)
    while offset < num_tokens and len(images) < 20:
        length = rng.choice((1, 3, 40))
        images.append(make_image(_shared_or_not(rng, name), offset, length))
        offset += length + rng.choice((0, 1, 10))
    return images


def make_image(name: str, offset: int, length: int) -> Any:
    """Return an image in place of ``length`` tokens."""
    return MultiModalFeatureSpec(
        data=None,
        modality="image",
        identifier=name,
        mm_position=PlaceholderRange(offset=offset, length=length),
    )


def _shared_or_not(rng: random.Random, text: str) -> str:
    return text if rng.random() < 0.5 else "".join(list(text))
