"""Ask vLLM about the variants of every class, and record its answers; about an hour of one core:

python -m tests.vllm.models.registry.ask [FILE] [--tables T,T] [--classes C,C] [--variants V,V]

Answers are appended to FILE while they come. A question that is in FILE is not asked again. When
every question is in FILE, ``answers.jsonl.xz`` is written: five variants of each class of the
registry, and for classes that kvoxide reads without vLLM, other choices in further turns.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

from kvoxide.lab.model import FAMILIES

from . import forked, recorded
from .classes import Origin, origins, registered
from .variants import CHOOSING, VARIANTS, folder

Question = tuple[str, str, str, int]
# How often the variants that have a choice are asked again.
_TURNS = 2


def main() -> None:
    options = _options()
    forked.prepare()
    tables = registered()
    everything = [*_questions(tables), *_further(tables)]
    wanted = [question for question in everything if _is_wanted(question, options)]
    index, count = map(int, options.part.split("/"))
    known = origins([name for names in tables.values() for name in names])
    for question in _not_in(options.file, wanted[index::count]):
        _append(options.file, _row(known.get(question[1]), *question))
    if options.file.exists() and not list(_not_in(options.file, everything)):
        recorded.write(recorded.read(options.file))


def _questions(tables: dict[str, list[str]]) -> Iterator[Question]:
    for table, names in tables.items():
        for variant in VARIANTS:
            yield from ((table, name, variant, 0) for name in names)


def _further(tables: dict[str, list[str]]) -> Iterator[Question]:
    for turn in range(1, _TURNS + 1):
        for table, names in tables.items():
            for variant in CHOOSING:
                yield from ((table, name, variant, turn) for name in names if name in FAMILIES)


def _is_wanted(question: Question, options: argparse.Namespace) -> bool:
    chosen = (options.tables, options.classes, options.variants, options.turns)
    return all(
        not given or str(part) in given.split(",")
        for part, given in zip(question, chosen, strict=True)
    )


def _not_in(file: Path, questions: list[Question]) -> Iterator[Question]:
    answered = set(map(recorded.key, recorded.read(file))) if file.exists() else set()
    return (question for question in questions if question[1:] not in answered)


def _row(origin: Origin | None, table: str, name: str, variant: str, turn: int) -> recorded.Row:
    row: recorded.Row = {"class": name, "table": table, "variant": variant, "turn": turn}
    if origin is None:
        return row | {"answer": {"failed": "no configuration is known for the class"}}
    try:
        files = folder(origin, variant, turn)
    except Exception as error:
        # The class refuses its own default fields.
        reason = f"no configuration: {type(error).__name__}: {error}"[: forked.MAX_REASON]
        return row | {"answer": {"failed": reason}}
    forked.import_class(name)
    return row | {"files": files, "answer": forked.answer(files)}


def _append(file: Path, row: recorded.Row) -> None:
    # Write in one call, because other processes may append too.
    with file.open("ab", buffering=0) as lines:
        lines.write(json.dumps(row).encode() + b"\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage=__doc__)
    default = Path(gettempdir()) / "kvoxide-registry.jsonl"
    parser.add_argument("file", type=Path, nargs="?", default=default)
    parser.add_argument("--tables", help="names of tables, see classes.registered")
    parser.add_argument("--classes")
    parser.add_argument("--variants")
    parser.add_argument("--turns", help="numbers of turns, 0 for the first")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th question, from the I-th")
    return parser.parse_args()


if __name__ == "__main__":
    main()
