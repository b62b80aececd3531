"""Asks vLLM in processes that are forked after everything is imported, one for each question.

Importing takes half a minute, an answer one to three seconds.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kvoxide.lab.model import GPUS
from kvoxide.lab.model.from_vllm import building, stand_in
from kvoxide.lab.model.from_vllm.process import cause_of, judged, reason_of

from ..asking import plan
from ..cases import MAX_BATCHED_TOKENS

SECONDS: Final = 120
MAX_REASON: Final = 300
_BYTES: Final = 10 * 2**30
Folder = dict[str, dict[str, Any]]


def prepare() -> None:
    """Import what every answer needs. Call it once, before :func:`answer`."""
    os.environ["OMP_NUM_THREADS"] = "1"
    stand_in.put_in_place(GPUS["h100"])
    import ray  # noqa: F401
    import torch
    import vllm.engine.arg_utils
    import vllm.model_executor.models.registry
    import vllm.v1.core.kv_cache_utils
    import vllm.v1.worker.gpu.attn_utils
    import vllm.v1.worker.workspace  # noqa: F401
    from vllm.model_executor.model_loader import utils

    torch.set_num_threads(1)
    stand_in.look_at_classes_here()
    # These are notes for loading weights a second time, which take a third of the time.
    utils.record_metadata_for_reloading = lambda *_: None


def import_class(name: str) -> None:
    """Import the module of a class of vLLM's registry, if that is possible."""
    from vllm.model_executor.models import registry

    try:
        registry.ModelRegistry.models[name].load_model_cls()
    except Exception as error:
        print(f"{name}: {error}", file=sys.stderr)


def answer(files: Folder) -> dict[str, Any]:
    """Return vLLM's answer to a folder: its plan, ``refused`` with vLLM's reason, or ``failed``
    with the error if the model could not be built."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(files, writing)
    os.close(writing)
    text = _read(reading, time.monotonic() + SECONDS)
    os.close(reading)
    if text is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text is None:
        return {"failed": f"no answer within {SECONDS} seconds"}
    if not text:
        return {"failed": f"process ended with {os.waitstatus_to_exitcode(status)}"}
    found: dict[str, Any] = json.loads(text)
    return found


def _read(file: int, deadline: float) -> bytes | None:
    """Return all that is written to the pipe, or None if its end is not reached in time."""
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if select.select([file], [], [], left)[0]:
            part = os.read(file, 2**16)
            if not part:
                return b"".join(parts)
            parts.append(part)
    return None


def _child(files: Folder, writing: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_BYTES, _BYTES))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    with TemporaryDirectory() as folder:
        found = _answer_or_error(Path(folder), files)
        text = json.dumps(found).replace(folder, "DIR")
    with os.fdopen(writing, "w") as file:
        file.write(text)
    # Skip the exit functions of the process that was forked.
    os._exit(0)


def _answer_or_error(folder: Path, files: Folder) -> dict[str, Any]:
    for name, fields in files.items():
        (folder / name).write_text(json.dumps(fields))
    try:
        return _answer(folder)
    except (ValueError, NotImplementedError, AssertionError) as error:
        return judged(reason_of(error)[:MAX_REASON], cause_of(error))
    except BaseException as error:
        return {"failed": f"{type(error).__name__}: {error}"[:MAX_REASON]}


def _answer(folder: Path) -> dict[str, Any]:
    config = building.vllm_config(str(folder), {"max_num_batched_tokens": MAX_BATCHED_TOKENS})
    building.build(config)
    return {
        **plan(config),
        "architecture": config.model_config.architecture,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "cache_dtype": config.cache_config.cache_dtype,
        "has_prefix_caching": bool(config.cache_config.enable_prefix_caching),
    }
