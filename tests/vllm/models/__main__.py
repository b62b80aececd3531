"""Asks vLLM 0.33.0 about models, one after the other:

python -m tests.vllm.models            all of them, into vllm_answers.json; minutes
python -m tests.vllm.models sample     some of them, to standard output as lines of JSON
"""

import json
import sys
from dataclasses import asdict
from typing import Any

from . import hopper
from .cases import ANSWERS, Case, all_cases, sample

RELEASE = "0.33.0"


def main() -> None:
    hopper.pretend()
    require_release()
    if sys.argv[1:] == ["sample"]:
        for case in sample():
            print(json.dumps(_row(case)), flush=True)
        return
    rows = []
    for case in all_cases():
        rows.append(json.dumps(_row(case)))
        print(rows[-1], flush=True)
    ANSWERS.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def require_release() -> None:
    import vllm

    if vllm.__version__ != RELEASE:
        raise SystemExit(f"vLLM {vllm.__version__} is imported; the answers are {RELEASE}'s")


def _row(case: Case) -> dict[str, Any]:
    from .asking import answer

    try:
        result = answer(case)
    except Exception as error:
        # Whatever vLLM raises, it does not serve the model so.
        result = {"refused": f"{type(error).__name__}: {error}"[:300]}
    return {"case": {k: v for k, v in asdict(case).items() if v is not None}, "answer": result}


if __name__ == "__main__":
    main()
