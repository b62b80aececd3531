"""Plays recorded folders through kvoxide, and compares each plan with vLLM's."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvoxide import ConfigError
from kvoxide.lab.model import Deployment, ModelPlan, read_model

from ..cases import MAX_BATCHED_TOKENS
from ..ours import answer_of
from . import recorded

Row = dict[str, Any]
EQUAL, REFUSED, DIFFERENT = "equal", "refused", "different"
BOTH_REFUSE, ONLY_VLLM_REFUSES = "both refuse", "only vLLM refuses"
NOT_BUILT = "not built"
RESULTS = (EQUAL, REFUSED, DIFFERENT, BOTH_REFUSE, ONLY_VLLM_REFUSES, NOT_BUILT)
# The compared parts of an answer. The class that is loaded is not compared.
_COMPARED = (
    "groups",
    "block_bytes",
    "request_bytes",
    "max_model_len",
    "blocks",
    "hash_tokens",
    "hit_tokens",
    "cache_dtype",
    "has_prefix_caching",
)


@dataclass(frozen=True)
class Comparison:
    """A recorded folder with vLLM's answer, kvoxide's answer, and the one of ``RESULTS`` that
    applies."""

    row: Row
    ours: dict[str, Any]
    result: str

    @property
    def name(self) -> str:
        name, variant, turn = recorded.key(self.row)
        return f"{name}, {variant}{f' {turn}' if turn else ''}"

    def differing(self) -> Iterator[str]:
        """Yield a line for each part of the answer that differs."""
        if "crashed" in self.ours:
            yield f"kvoxide ended with {self.ours['crashed']}"
            return
        for part in _COMPARED:
            theirs, ours = _value(self.row["answer"], part), _value(self.ours, part)
            if theirs != ours:
                yield f"{part}: vLLM {json.dumps(theirs)}, kvoxide {json.dumps(ours)}"


def compare(rows: Iterable[Row]) -> Iterator[Comparison]:
    """Yield the comparison of each row that has files."""
    for row in rows:
        if "files" in row:
            ours = our_answer(row["files"])
            yield Comparison(row, ours, _result(row["answer"], ours))


def our_answer(files: dict[str, Any]) -> dict[str, Any]:
    """Return kvoxide's answer without vLLM. It has ``refused`` with the reason, or ``crashed`` with
    any error that is not a :class:`~kvoxide.ConfigError`."""
    deployment = Deployment(max_batched_tokens=MAX_BATCHED_TOKENS)
    with TemporaryDirectory() as folder:
        for name, fields in files.items():
            (Path(folder) / name).write_text(json.dumps(fields))
        try:
            made = read_model(folder, deployment, ask=False)
            assert isinstance(made, ModelPlan)
            return {
                **answer_of(made),
                "dtype": made.dtype,
                "cache_dtype": made.cache_dtype,
                "has_prefix_caching": not any("prefix caching" in note for note in made.notes),
            }
        except ConfigError as error:
            return {"refused": str(error).replace(folder, "DIR")}
        except Exception as error:
            return {"crashed": f"{type(error).__name__}: {error}"}


def _result(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    is_refused = "refused" in ours
    if "crashed" in ours:
        return DIFFERENT
    if "failed" in theirs:
        return NOT_BUILT
    if "refused" in theirs:
        return BOTH_REFUSE if is_refused else ONLY_VLLM_REFUSES
    if is_refused:
        return REFUSED
    is_equal = all(_value(theirs, part) == _value(ours, part) for part in _COMPARED)
    return EQUAL if is_equal else DIFFERENT


def _value(answer: dict[str, Any], part: str) -> Any:
    value = answer.get(part)
    if part != "cache_dtype":
        return value
    value = answer.get("dtype") if value == "auto" else value
    # vLLM has several names for fp8. The layout of the bytes is in the groups.
    return "fp8" if str(value).startswith("fp8") else value


def table(by: str, found: list[Comparison]) -> Iterator[str]:
    """Yield the lines of a table: how many folders have which result, by a field of their rows."""
    yield f"| {by} | folders | " + " | ".join(RESULTS) + " |"
    yield "|---" * (len(RESULTS) + 2) + "|"
    for value in (*dict.fromkeys(each.row[by] for each in found), "all"):
        counts = Counter(each.result for each in found if value in ("all", each.row[by]))
        cells = [value, str(counts.total()), *(str(counts[result]) for result in RESULTS)]
        yield "| " + " | ".join(cells) + " |"


def describe(result: str, found: list[Comparison]) -> Iterator[str]:
    """Yield the differences, or kvoxide's reason, for each comparison with this result."""
    for each in found:
        if each.result == result:
            yield f"- {each.name}"
            if result == DIFFERENT:
                yield from (f"    - {line}" for line in each.differing())
            else:
                yield f"    - vLLM: {_short(each.row['answer'])}"
                yield f"    - kvoxide: {_short(each.ours)}"


def _short(answer: dict[str, Any]) -> str:
    said = answer.get("refused") or answer.get("failed")
    return str(said or [answer["groups"], answer["max_model_len"]])[:160]
