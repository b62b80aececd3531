"""The process that asks vLLM. It reads a question as JSON from standard input, and prints the
answer as one line."""

import json
import re
import sys
from typing import Any, Final

from kvoxide.lab.model.gpu import gpu_named

MARK: Final = "kvoxide-answer: "
"""Marks the line of JSON among the other output of the process."""
# Errors about something missing on this machine. They say nothing about the model.
_UNABLE: Final = re.compile(
    r"No module named '[\w.]+'"
    r"|cannot import name [^\n]*"
    r"|[^\n]*(undefined symbol|cannot open shared object)[^\n]*"
    r"|[^\n]*(not compiled with CUDA|Failed to infer device type|has no attribute)[^\n]*"
    r"|Could not run [^\n]* backend"
)
_NOT_INSPECTED: Final = "failed to be inspected"


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    from kvoxide.lab.model.from_vllm import stand_in

    stand_in.put_in_place(gpu_named(question["gpu"]))
    import vllm

    from kvoxide.lab.model.from_vllm import building

    found: dict[str, Any] = {"vllm": vllm.__version__}
    try:
        config = building.vllm_config(question["folder"], question["options"])
        return found | building.answer(config)
    except (ValueError, NotImplementedError, AssertionError) as error:
        return found | judged(reason_of(error), cause_of(error))


def judged(reason: str, cause: str = "") -> dict[str, str]:
    """Return the meaning of an error of vLLM. Either vLLM refuses to start, or it cannot load the
    model on this machine, whose packages and operators differ from a server with the wanted GPU.

    ``cause`` is the first error that led to it.
    """
    missing = _UNABLE.search(reason) or _UNABLE.search(cause)
    if missing is not None:
        return {"failed": missing[0]}
    if _NOT_INSPECTED in reason:
        return {"failed": cause or reason}
    return {"refused": reason}


def cause_of(error: BaseException) -> str:
    """Return the message of the error that vLLM raised first, or the reason why it could not load a
    class."""
    from kvoxide.lab.model.from_vllm import stand_in

    if stand_in.not_loaded:
        return stand_in.not_loaded[-1]
    earlier = error.__cause__ or error.__context__
    while earlier is not None:
        error, earlier = earlier, earlier.__cause__ or earlier.__context__
        if isinstance(error, ImportError | AttributeError):
            return str(error)
    return ""


def reason_of(error: Exception) -> str:
    """Return the message. If the error collects several, as Pydantic does, return the first."""
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
