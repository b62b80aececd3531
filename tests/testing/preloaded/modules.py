"""The modules that the server imports: they take vLLM long to import, and are not vLLM's."""

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

# vLLM sets these before it imports torch. They include the platform that it imports its own modules
# for.
_VARIABLES: Final = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}

# Together with the modules that they import, these are 95 % of the time that the import of an
# engine takes.
_MODULES: Final = (
    "torch",
    "torch._inductor.lowering",
    "torch._inductor.compile_fx",
    "torch.utils.cpp_extension",
    "transformers",
    "transformers.generation.configuration_utils",
    "transformers.modeling_gguf_pytorch_utils",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.video_processing_utils",
    "aiohttp",
    "cpuinfo",
    "cv2",
    "einops",
    "fastapi",
    "llguidance",
    "msgspec",
    "openai.types.responses.response_function_tool_call_output_item",
    "openai_harmony",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "prometheus_client",
    "psutil",
    "pydantic.types",
    "regex",
    "requests",
    "uvloop",
    "xgrammar",
    "zmq.asyncio",
)


ALSO: Final = "PRELOADED_TOO"
"""The variable that names further modules for a server to import, separated by commas."""

ALSO_FROM: Final = "PRELOADED_FROM"
"""The variable with the folders where the server looks for them first, separated as in
PYTHONPATH."""


def import_all() -> None:
    """Import each of the modules that is installed."""
    os.environ.update(_VARIABLES)
    sys.path[:0] = filter(None, os.environ.get(ALSO_FROM, "").split(os.pathsep))
    for name in (*_MODULES, *filter(None, os.environ.get(ALSO, "").split(","))):
        with suppress(ImportError):
            import_module(name)
