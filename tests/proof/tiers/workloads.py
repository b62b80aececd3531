"""The judge's traffic: the generators of the judge of retention and three more, each several times
on one server.

``docs/lab/tiers.md`` lists the workload for each cell of the first simulation.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from tests.proof.retention import workloads as retention
from tests.proof.retention.cells import Traffics
from tests.proof.retention.traffic import Recorded, Text, Traffic
from tests.proof.retention.workloads import Workload
from tests.proof.retention.workloads.chats import reading_seconds

COPIES: Final = 2  # so that a pool of 3 % of the working set holds a few requests
_SEEDS_APART: Final = 1000  # between copies, so that no copy has the seed of another traffic


@cache
def all_workloads() -> dict[str, Workload]:
    """Return all workloads by name. The ones that the judge of retention does not have are played
    in the half that is held back."""
    own = {name.replace("_", "-"): generator for name, generator in _GENERATORS.items()}
    return retention.workloads() | {name: Workload(name, each) for name, each in own.items()}


def on_one_server(traffic: Traffics, copies: int) -> Recorded:
    """Return several copies of the traffic at the same time, which have no token in common. No
    request says where a session ends."""
    seeds = [traffic.seed + _SEEDS_APART * copy for copy in range(copies)]
    records: list[dict[str, Any]] = []
    next_id = 0
    for copy, seed in enumerate(seeds):
        recorded = traffic.workload.recorded(seed).without_session_ends()
        own = list(_records(recorded, copy, next_id))
        next_id = 1 + max(max(each["hash_ids"] + each["output_hash_ids"]) for each in own)
        records += own
    records.sort(key=lambda record: record["timestamp"])
    return Recorded(tuple(json.dumps(record).encode() for record in records))


def _records(recorded: Recorded, copy: int, first_id: int) -> Iterator[dict[str, Any]]:
    """Yield the requests of a copy, with ids from ``first_id`` on and names of their own."""
    for line in recorded.lines:
        record = json.loads(line)
        for key in ("hash_ids", "output_hash_ids"):
            record[key] = [each + first_id for each in record[key]]
        for key in ("session_id", "request_id"):
            if key in record:
                record[key] = f"{copy}:{record[key]}"
        if "wait_for" in record:
            record["wait_for"] = [f"{copy}:{each}" for each in record["wait_for"]]
        yield record


def graded_answers(traffic: Traffic) -> None:
    """A model grades the answers of others: a rubric, the question, an answer, and one criterion at
    the end. All criteria are asked for at once. Other answers to the question come later.

    A judge with a rubric, a question and answers: MT-Bench (NeurIPS 2023). Several criteria and
    samples for each text: G-Eval (arXiv 2303.16634). Lengths are assumed.
    """
    rubrics = [traffic.fresh(traffic.lognormal(900, 0.5, 200, 4000)) for _ in range(8)]
    rubric = traffic.zipf(len(rubrics), 0.9)
    criteria = [traffic.fresh(traffic.lognormal(90, 0.4, 20, 300)) for _ in range(4)]
    questions: list[Text] = []
    seconds = 0.0
    for number in range(220):
        if number % 2 == 0:
            question = traffic.fresh(traffic.lognormal(500, 1.0, 30, 8000))
            questions.append(traffic.text(rubrics[rubric()], question))
        asked = questions[-traffic.whole(1, min(40, len(questions)))]
        graded = traffic.extend(asked, traffic.fresh(traffic.lognormal(700, 0.8, 20, 6000)))
        seconds += traffic.exponential(2.0)
        for index, criterion in enumerate(criteria):
            verdict = traffic.fresh(traffic.lognormal(120, 0.6, 2, 800))
            prompt = traffic.extend(graded, criterion)
            traffic.ask(seconds + 0.05 * index, prompt, verdict, f"{number}-{index}")


def one_shot(traffic: Traffic) -> None:
    """Requests without a follow-up. Applications have short instructions, and each text is new.

    Most requests are single ones, from clients of uneven popularity: ServeGen (arXiv 2505.09999).
    1,155 tokens of input on average for conversations: Azure's trace of 2023 (Splitwise, ISCA
    2024); texts are longer here, as in summaries.
    """
    instructions = [traffic.fresh(traffic.lognormal(450, 0.8, 40, 3000)) for _ in range(60)]
    instruction = traffic.zipf(len(instructions), 0.9)
    seconds = 0.0
    for number in range(700):
        seconds += traffic.exponential(0.4)
        text = traffic.fresh(traffic.lognormal(1900, 1.0, 30, 16000))
        prompt = traffic.text(instructions[instruction()], text)
        traffic.ask(seconds, prompt, traffic.fresh(traffic.lognormal(200, 0.9, 4, 1500)), number)


def long_conversations(traffic: Traffic) -> None:
    """Conversations about long texts. Most have one turn.

    12,035 tokens of input and 343 of output on average, 40 % of them reusable: Mooncake's
    conversation trace (FAST 2025). Inputs are halved.
    """
    system = traffic.fresh(500)
    start = 0.0
    for conversation in range(190):
        start += traffic.exponential(1.2)
        opening = traffic.fresh(traffic.lognormal(3300, 1.1, 30, 28000))
        text, session = traffic.text(system, opening), traffic.session(conversation, start)
        for _ in range(traffic.turns(2.2, 12)):
            text = session.ask(text, traffic.fresh(traffic.lognormal(290, 0.7, 5, 2000)))
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(250, 1.5, 5, 12000)))
            session.pause(reading_seconds(traffic))


_GENERATORS: Final[dict[str, Callable[[Traffic], None]]] = {
    generator.__name__: generator for generator in (graded_answers, long_conversations, one_shot)
}
