"""The settings of a server on which a model's KV cache depends."""

from dataclasses import dataclass, replace

from kvoxide._core import ConfigError
from kvoxide.lab.model import gpu as gpus
from kvoxide.lab.model.precision import AUTO, CACHE_DTYPES
from kvoxide.lab.model.quantization import NVFP4


@dataclass(frozen=True)
class Deployment:
    """``tensor_parallel`` ranks share each layer, ``pipeline_parallel`` ranks the layers.

    ``cache_dtype`` is one of :data:`~kvoxide.lab.model.precision.CACHE_DTYPES`; ``auto`` is the
    model's precision. ``block_size`` is in tokens, None for vLLM's choice. ``max_model_len`` is in
    tokens, None for the configuration's. A step schedules at most ``max_batched_tokens``. ``gpu``
    is one of :data:`~kvoxide.lab.model.gpu.GPUS`. At most ``max_num_seqs`` requests run at a time,
    None if that is not known. Without ``async_scheduling``, a stage schedules no step while it runs
    another one. ``prefix_caching`` is whether prefixes are cached, None for vLLM's choice. Raises
    :class:`~kvoxide.ConfigError`.
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
    prefix_caching: bool | None = None

    def __post_init__(self) -> None:
        """Refuse settings that no server accepts."""
        gpus.gpu_named(self.gpu)
        if self.cache_dtype not in (*CACHE_DTYPES, NVFP4):
            raise ConfigError(
                f"cache_dtype {self.cache_dtype!r} is unknown; it can be {', '.join(CACHE_DTYPES)}"
            )
        for name in ("tensor_parallel", "pipeline_parallel", "max_batched_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("block_size", "max_model_len", "max_num_seqs"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ConfigError(f"{name} is {size}; it must be at least 1")

    def for_checkpoint(self, cache_dtype: str | None) -> "Deployment":
        """Return a deployment with the precision of a checkpoint's quantized KV cache, unless
        another precision is set."""
        if cache_dtype is None or self.cache_dtype != AUTO:
            return self
        return replace(self, cache_dtype=cache_dtype)

    @property
    def max_in_flight_tokens(self) -> int:
        """The most tokens that are scheduled and not yet computed."""
        steps = self.pipeline_parallel + self.async_scheduling
        return steps * self.max_batched_tokens
