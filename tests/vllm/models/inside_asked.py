"""Prints what :func:`kvoxide.model.asked.ask_vllm` makes of the named configurations, a line each,
and how many seconds it took."""

import json
import sys
import time
from pathlib import Path

from kvoxide import ConfigError
from kvoxide.model import Deployment
from kvoxide.model.asked import ask_vllm


def main() -> None:
    for config in map(Path, sys.argv[1:]):
        started = time.perf_counter()
        try:
            plan = ask_vllm(config, Deployment(max_batched_tokens=2048))
            answer = dict(plan.answer)
        except ConfigError as error:
            answer = {"refused": str(error)}
        seconds = time.perf_counter() - started
        row = {"config": config.name, "seconds": seconds, "answer": answer}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
