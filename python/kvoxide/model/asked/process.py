"""The process that asks vLLM: reads a question as JSON from standard input and prints the answer as
one line."""

import json
import re
import sys
from typing import Any, Final

from kvoxide.model.gpu import gpu_named

MARK: Final = "kvoxide-answer: "
"""Begins the line of JSON among what the process prints."""
_MISSING: Final = re.compile(r"No module named '[\w.]+'")


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    from kvoxide.model.asked import stand_in

    stand_in.put_in_place(gpu_named(question["gpu"]))
    import vllm

    from kvoxide.model.asked import building

    found: dict[str, Any] = {"vllm": vllm.__version__}
    try:
        config = building.vllm_config(question["folder"], question["options"])
        return found | building.answer(config)
    except (ValueError, NotImplementedError, AssertionError) as error:
        return found | told(_reason(error))


def told(reason: str) -> dict[str, str]:
    """What an error of vLLM's means: a refusal to start, unless it is for want of a package that a
    server of that GPU has."""
    missing = _MISSING.search(reason)
    return {"failed": missing[0]} if missing else {"refused": reason}


def _reason(error: Exception) -> str:
    """The message; of a collection of errors, as Pydantic raises it, the first."""
    errors = getattr(error, "errors", None)
    message = str(errors()[0]["msg"]).removeprefix("Value error, ") if errors else str(error)
    return message or type(error).__name__


def _main() -> None:
    question = json.load(sys.stdin)
    try:
        found = _answer(question)
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"[:500]}
    print(MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
