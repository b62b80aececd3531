"""Asks the installed vLLM, once for each question."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.folder import MISTRAL_CONFIG, config_file, model_files
from kvoxide.lab.model.from_vllm import cache
from kvoxide.lab.model.from_vllm.plan import VllmPlan
from kvoxide.lab.model.from_vllm.process import MARK
from kvoxide.lab.model.pooling import pooling_files

_PROCESS: Final = "kvoxide.lab.model.from_vllm.process"
# Time limit for the largest models. Most need a tenth of it.
_SECONDS: Final = 300
# The vLLM option for each field of a deployment.
_OPTIONS: Final = {
    "tensor_parallel": "tensor_parallel_size",
    "pipeline_parallel": "pipeline_parallel_size",
    "cache_dtype": "kv_cache_dtype",
    "block_size": "block_size",
    "max_model_len": "max_model_len",
    "max_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "prefix_caching": "enable_prefix_caching",
}


class NotAskedError(ConfigError):
    """vLLM gave no answer: it is not installed, or building the model failed."""


def is_installed() -> bool:
    """Return whether a vLLM is installed that could be asked."""
    return find_spec("vllm") is not None


def ask_vllm(path: Path, deployment: Deployment) -> VllmPlan:
    """Return the plan of the installed vLLM for the model at ``path``, its directory or its
    ``config.json``.

    Raises :class:`~kvoxide.ConfigError` with vLLM's reason if it refuses to start, and
    :class:`NotAskedError` if it could not be asked.
    """
    if not is_installed():
        raise NotAskedError("vLLM is not installed here")
    files = model_files(path) | pooling_files(config_file(path))
    options = {
        option: value
        for name, option in _OPTIONS.items()
        if (value := getattr(deployment, name)) is not None
    }
    if MISTRAL_CONFIG in files:
        options["config_format"] = "mistral"
    key = cache.key_of(files, deployment.gpu, options)
    found = cache.read(key)
    if found is None:
        found = _asked(files, deployment.gpu, options)
        if "failed" in found:
            raise NotAskedError(f"vLLM cannot load the model on this machine: {found['failed']}")
        cache.write(key, found)
    if "refused" in found:
        raise ConfigError(f"vLLM {found['vllm']} refuses to start: {found['refused']}")
    return VllmPlan(found, deployment)


def _asked(files: dict[str, bytes], gpu: str, options: dict[str, Any]) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        question = {"folder": folder, "gpu": gpu, "options": options}
        try:
            done = subprocess.run(
                [sys.executable, "-m", _PROCESS],
                input=json.dumps(question),
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"it did not answer within {_SECONDS} seconds"}
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return found
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {"failed": last}
