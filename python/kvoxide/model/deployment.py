"""How a model is served, as far as its KV cache depends on it."""

from dataclasses import dataclass, replace

from kvoxide._core import ConfigError
from kvoxide.model import gpu as gpus
from kvoxide.model.precision import AUTO, CACHE_DTYPES
from kvoxide.model.quantization import NVFP4


@dataclass(frozen=True)
class Deployment:
    """``tensor_parallel`` ranks share each layer, ``pipeline_parallel`` ranks the layers.

    ``cache_dtype`` is one of :data:`~kvoxide.model.precision.CACHE_DTYPES`; ``auto`` is that of the
    model. ``block_size`` is in tokens, None for vLLM's choice. ``max_model_len`` is in tokens, None
    for what the configuration says. ``max_batched_tokens`` are scheduled in a step at most. ``gpu``
    is one of :data:`~kvoxide.model.gpu.GPUS`. ``max_num_seqs`` requests run at a time, None where
    that is not known. Without ``async_scheduling``, a stage schedules no step while it runs another
    one. Raises :class:`~kvoxide.ConfigError`.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    cache_dtype: str = AUTO
    block_size: int | None = None
    max_model_len: int | None = None
    max_batched_tokens: int = 8192
    gpu: str = gpus.DEFAULT
    max_num_seqs: int | None = None
    async_scheduling: bool = True

    def __post_init__(self) -> None:
        """Refuse what no server can be told."""
        gpus.gpu_named(self.gpu)
        if self.cache_dtype not in (*CACHE_DTYPES, NVFP4):
            raise ConfigError(
                f"cache_dtype {self.cache_dtype!r} is unknown; known are {', '.join(CACHE_DTYPES)}"
            )
        for name in ("tensor_parallel", "pipeline_parallel", "max_batched_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("block_size", "max_model_len", "max_num_seqs"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ConfigError(f"{name} is {size}; it must be at least 1")

    def for_checkpoint(self, cache_dtype: str | None) -> "Deployment":
        """With the precision that a checkpoint's KV cache is quantized to, unless one is wanted."""
        if cache_dtype is None or self.cache_dtype != AUTO:
            return self
        return replace(self, cache_dtype=cache_dtype)

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens that are scheduled and not yet computed, at most."""
        steps = self.pipeline_parallel + self.async_scheduling
        return steps * self.max_batched_tokens
