"""Asks vLLM about models, one after the other:

python -m tests.vllm.models [MODEL...]    all or the named ones, into vllm_answers.json; minutes
python -m tests.vllm.models sample        some of them, to standard output as lines of JSON
python -m tests.vllm.models counts        classes of its tables whose recorded answers are kvoxide's
"""

import json
import sys
from dataclasses import asdict
from typing import Any

from kvoxide.lab.model import GPUS
from kvoxide.lab.model.from_vllm import stand_in

from tests.testing.vllm_releases import NEWEST

from .cases import ANSWERS, Case, all_cases, recorded, sample

RELEASE = NEWEST


def main() -> None:
    stand_in.put_in_place(GPUS["h100"])
    require_release()
    if sys.argv[1:] == ["sample"]:
        for case in sample():
            print(json.dumps(_row(case, _answer(case))), flush=True)
        return
    if sys.argv[1:] == ["counts"]:
        _print_counts()
        return
    wanted = sys.argv[1:] or {case.model for case in all_cases()}
    known = dict(recorded()) if sys.argv[1:] else {}
    for case in all_cases():
        if case.model in wanted:
            known[case] = _answer(case)
            print(json.dumps(_row(case, known[case])), flush=True)
    rows = [json.dumps(_row(case, known[case])) for case in all_cases()]
    ANSWERS.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def _print_counts() -> None:
    from vllm.model_executor.models import registry

    from .test_models import equal_cases

    cases, known = equal_cases(), dict(recorded())
    text, multimodal = registry._TEXT_GENERATION_MODELS, registry._MULTIMODAL_MODELS
    others = registry._VLLM_MODELS.keys() - text.keys() - multimodal.keys()
    tables = {"text": text, "multimodal": multimodal, "neither": others}
    print("| table | classes | equal | answers compared, refusals among them |\n|---|---|---|---|")
    for table, classes in tables.items():
        found = [cases[name] for name in classes if name in cases]
        compared = [case for each in found for case in each]
        refusals = sum("refused" in known[case] for case in compared)
        print(f"| {table} | {len(classes)} | {len(found)} | {len(compared)}, {refusals} |")
    assert cases.keys() <= registry._VLLM_MODELS.keys()


def require_release() -> None:
    import vllm

    if vllm.__version__ != RELEASE:
        raise SystemExit(f"vLLM {vllm.__version__} is imported; the answers are {RELEASE}'s")


def _answer(case: Case) -> dict[str, Any]:
    from .asking import answer

    try:
        return answer(case)
    except Exception as error:
        # If vLLM raises any error, it does not serve the model in this way.
        return {"refused": f"{type(error).__name__}: {error}"[:300]}


def _row(case: Case, answer: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in asdict(case).items() if value is not None}
    return {"case": given, "answer": answer}


if __name__ == "__main__":
    main()
