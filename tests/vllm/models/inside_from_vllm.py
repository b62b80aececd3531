"""Prints what :func:`kvoxide.lab.model.from_vllm.ask_vllm` returns for configurations, a line each,
and how many seconds it took: ``inside_from_vllm NUM_NEW CONFIG...``.

New processes ask the first ``NUM_NEW``. The other processes find third-party modules imported.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kvoxide import ConfigError
from kvoxide.lab.model import Deployment
from kvoxide.lab.model.from_vllm import ask_vllm, asking

from tests.testing import preloaded


def main() -> None:
    num_new, configs = int(sys.argv[1]), map(Path, sys.argv[2:])
    for number, config in enumerate(configs):
        if number == num_new:
            asking.subprocess.run = run_preloaded  # type: ignore[attr-defined]
        started = time.perf_counter()
        try:
            plan = ask_vllm(config, Deployment(max_batched_tokens=2048))
            answer = dict(plan.answer)
        except ConfigError as error:
            answer = {"refused": str(error)}
        seconds = time.perf_counter() - started
        row = {"config": config.name, "seconds": seconds, "answer": answer}
        print(json.dumps(row), flush=True)


def run_preloaded(command: list[str], input: str, **_: Any) -> subprocess.CompletedProcess[str]:
    """Run the command without the variable of the answers' folder. Only the asking process reads
    it, and with it the command would get a server of its own."""
    environment = {name: text for name, text in os.environ.items() if name != "XDG_CACHE_HOME"}
    return preloaded.run(command[1:], environment, input)


if __name__ == "__main__":
    main()
