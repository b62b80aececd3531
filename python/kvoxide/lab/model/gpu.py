"""The GPUs that kvoxide knows by name. vLLM chooses kernels and caches by these properties."""

from dataclasses import dataclass
from typing import Final

from kvoxide._core import ConfigError


@dataclass(frozen=True)
class Gpu:
    """``name`` is the driver's name, ``capability`` the compute capability, and ``memory`` is in
    GiB."""

    name: str
    capability: tuple[int, int]
    memory: int
    multiprocessors: int

    @property
    def is_hopper(self) -> bool:
        """Whether the families describe the kernels of this GPU."""
        return self.capability == (9, 0)


DEFAULT: Final = "h100"
GPUS: Final = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 80, 108),
    "l40s": Gpu("NVIDIA L40S", (8, 9), 48, 142),
    "h100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80, 132),
    "h20": Gpu("NVIDIA H20", (9, 0), 96, 78),
    "h200": Gpu("NVIDIA H200", (9, 0), 141, 132),
    "b200": Gpu("NVIDIA B200", (10, 0), 180, 148),
}


def gpu_named(name: str) -> Gpu:
    """Return the GPU. Raises :class:`~kvoxide.ConfigError` for an unknown name."""
    if name not in GPUS:
        raise ConfigError(f"the GPU {name!r} is unknown; it can be {', '.join(GPUS)}")
    return GPUS[name]
