"""Derives the KV cache groups and blocks of a model from its folder.

Start at :func:`read_model`. If vLLM is installed, :mod:`~kvoxide.lab.model.from_vllm` asks it.
Otherwise :func:`plan_model` computes the answer: ``config`` reads the files, ``families`` says what
each layer keeps, ``block_sizes`` how large its blocks are, ``grouping`` which layers share a block
table, and ``memory`` how many blocks there are. The results equal vLLM's on a Hopper GPU;
:mod:`~kvoxide.lab.model.release` names the release.
"""

from kvoxide.lab.model.config import UnknownModelError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families import FAMILIES
from kvoxide.lab.model.gpu import GPUS
from kvoxide.lab.model.grouping import LayerGroup
from kvoxide.lab.model.hits import hit_tokens
from kvoxide.lab.model.host_chunks import host_chunk_bytes
from kvoxide.lab.model.layers import LayerCache
from kvoxide.lab.model.plan import ModelPlan, plan_model
from kvoxide.lab.model.precision import CACHE_DTYPES
from kvoxide.lab.model.reader import Plan, read_model

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
    "host_chunk_bytes",
    "plan_model",
    "read_model",
]
