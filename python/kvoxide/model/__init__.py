"""The KV cache groups and blocks of a model, from its folder.

:func:`read_model` is the door. Where vLLM is installed, :mod:`~kvoxide.model.from_vllm` asks it.
Without, :func:`plan_model` knows: ``config`` reads the files, ``families`` what each layer keeps,
``block_sizes`` how large its blocks are, ``grouping`` which layers share a block table, and
``memory`` how many blocks there are. The results are those of vLLM 0.33.0 on a Hopper GPU.
"""

from kvoxide.model.config import UnknownModelError
from kvoxide.model.deployment import Deployment
from kvoxide.model.families import FAMILIES
from kvoxide.model.gpu import GPUS
from kvoxide.model.grouping import LayerGroup
from kvoxide.model.hits import hit_tokens
from kvoxide.model.layers import LayerCache
from kvoxide.model.plan import ModelPlan, plan_model
from kvoxide.model.precision import CACHE_DTYPES
from kvoxide.model.reader import Plan, read_model

__all__ = [
    "CACHE_DTYPES",
    "FAMILIES",
    "GPUS",
    "Deployment",
    "LayerCache",
    "LayerGroup",
    "ModelPlan",
    "Plan",
    "UnknownModelError",
    "hit_tokens",
    "plan_model",
    "read_model",
]
