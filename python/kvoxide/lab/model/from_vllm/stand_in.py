"""Imitates a GPU for vLLM's code, so that models can be built without weights, but not run.

Compiled extensions are empty modules, and kernels do nothing. Questions about the device get the
answers of the wanted GPU. Import this module before vLLM.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from kvoxide.lab.model.folder import CONFIG, read_object
from kvoxide.lab.model.gpu import Gpu

_GIB: Final = 2**30
_NUM_DEVICES: Final = 64
# vLLM calls these when it imports modules, before models may name any kernel.
_ASKED_EARLY: Final = ("cutlass_scaled_mm_supports", "cutlass_group_gemm_supported")

not_loaded: Final[list[str]] = []
"""Why vLLM could not load a class of a model, the latest reason last."""


class Anything:
    """Return True from every call, and itself as every attribute."""

    __name__ = "anything"

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> "Anything":
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Extensions(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds compiled extensions of vLLM, which need a driver, as empty modules."""

    def find_spec(
        self, name: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.startswith("vllm.") and name.endswith(("_C", "_C_stable_libtorch")):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        pass


class NoCuda(TorchFunctionMode):  # type: ignore[misc]
    """Moves tensors that are created on a CUDA device to the meta device."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "meta"
        return function(*args, **kwargs)


class _Configuration:
    """Imitates Triton's class: it has numbers of warps and stages, by which kernels are
    filtered."""

    def __init__(self, kwargs: Any, num_warps: int = 4, num_stages: int = 2, **_: Any) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages


def put_in_place(gpu: Gpu) -> None:
    """Install the imitation of the GPU. Call it once in a process, before anything else of vLLM is
    imported."""
    # A kernel of Kimi's that would be compiled when the model is built.
    os.environ["VLLM_KIMI_K3_GEMM_AR"] = "0"
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    # vLLM chooses this runner if Triton is installed.
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    # Compiling a kernel or looking for a device would take time and find nothing.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.meta_path.insert(0, _Extensions())
    _answer_for_the_device(gpu)
    _let_meta_tensors_be_read()
    _name_kernels(_is_asked_early)
    _set_platform(gpu)
    from vllm import triton_utils
    from vllm.config import vllm as configuration
    from vllm.utils import flashinfer, import_utils

    triton_utils.triton.Config = _Configuration
    import_utils.has_deep_gemm = lambda: True
    # A server loads kernels of FlashInfer from there.
    flashinfer.has_nvidia_artifactory = lambda: True
    # Some releases of vLLM check for Triton when they choose the runner.
    configuration.HAS_TRITON = True


def look_at_classes_here() -> None:
    """Let vLLM look at a model's class in this process. It normally starts another process, so that
    the class cannot use a device here."""
    from vllm.model_executor.models import registry

    def inspect(registered: Any) -> Any:
        try:
            return registry._ModelInfo.from_model_cls(registered.load_model_cls())
        except Exception as error:
            not_loaded.append(f"{type(error).__name__}: {error}")
            raise

    registry._LazyRegisteredModel.inspect_model_cls = inspect


def read_unknown_types_as_they_are(folder: str) -> None:
    """Let Transformers read a configuration whose class comes with the model. It keeps the fields
    of the file unchanged, and runs none of the model's code."""
    from transformers import AutoConfig, PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    for name in _types_in(Path(folder) / CONFIG):
        if name not in CONFIG_MAPPING and name not in _CONFIG_REGISTRY:
            AutoConfig.register(
                name, type("PlainConfig", (PreTrainedConfig,), {"model_type": name})
            )


def _types_in(config: Path) -> list[str]:
    if not config.exists():
        return []
    values = read_object(config)
    parts = [values, *(part for part in values.values() if isinstance(part, dict))]
    return [part["model_type"] for part in parts if isinstance(part.get("model_type"), str)]


def name_all_kernels() -> None:
    """Give every kernel a name from here on, because models need the names when they are built."""
    _name_kernels(lambda _: True)


def _is_asked_early(name: str) -> bool:
    return name.startswith(_ASKED_EARLY)


def _name_kernels(has_name: Any) -> None:
    namespace: Any = torch._ops._OpNamespace
    found = getattr(namespace, "found", namespace.__getattr__)

    def with_missing(self: Any, name: str) -> Any:
        try:
            return found(self, name)
        except AttributeError:
            if name.startswith("__") or not has_name(name):
                raise
            return Anything()

    namespace.found, namespace.__getattr__ = found, with_missing


def _let_meta_tensors_be_read() -> None:
    """Return zeros where a model is built from the values of a tensor on the meta device, which has
    none."""
    tensor: Any = torch.Tensor

    def or_zeros(name: str) -> None:
        found = getattr(tensor, name)

        def read(self: Any, *args: Any, **options: Any) -> Any:
            if self.is_meta:
                self = torch.zeros(self.shape, dtype=self.dtype, device="cpu")
            return found(self, *args, **options)

        setattr(tensor, name, read)

    for name in ("item", "tolist", "numpy", "cpu"):
        or_zeros(name)


def _answer_for_the_device(gpu: Gpu) -> None:
    cuda: Any = torch.cuda
    properties = Anything()
    for name, value in (
        ("name", gpu.name),
        ("major", gpu.capability[0]),
        ("minor", gpu.capability[1]),
        ("multi_processor_count", gpu.multiprocessors),
        ("total_memory", gpu.memory * _GIB),
    ):
        setattr(properties, name, value)
    cuda.Stream = cuda.Event = Anything
    cuda.current_stream = lambda *_: Anything()
    cuda.current_device = lambda: 0
    cuda.get_device_properties = lambda *_, **__: properties
    cuda.get_device_capability = lambda *_, **__: gpu.capability
    cuda.get_device_name = lambda *_, **__: gpu.name


def _set_platform(gpu: Gpu) -> None:
    from vllm import platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class StandIn(NonNvmlCudaPlatform):  # type: ignore[misc]
        # Tensors that models allocate in addition to their weights hold no values either.
        device_type = "meta"

        @classmethod
        def current_device(cls) -> str:
            return "meta"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(*gpu.capability)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return gpu.name

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return gpu.memory * _GIB

        @classmethod
        def device_count(cls) -> int:
            return _NUM_DEVICES

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return gpu.multiprocessors

        @classmethod
        def set_device(cls, device: Any) -> None:
            pass

    platforms._current_platform = StandIn()
