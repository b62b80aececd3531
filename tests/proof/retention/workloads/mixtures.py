"""Clients that differ in their requests, their rate and their times."""

import math

from tests.proof.retention.traffic import Piece, Text, Traffic

from .chats import reading_seconds


def scan_beside_hot_set(traffic: Traffic) -> None:
    """A batch job that repeats the same 60 documents again and again, together with assistants. A
    few assistants get most requests.

    Each has half of the requests. Batch and interactive work on one server: Qwen-Bailian (ATC 2025)
    has both kinds of clients, with prefixes of their own. The cyclic scan is the case at which LRU
    is known to fail (Belady, 1966, and later work).
    """
    documents = [traffic.fresh(traffic.lognormal(6500, 0.4, 1500, 20000)) for _ in range(60)]
    assistants = [traffic.fresh(traffic.lognormal(3000, 0.6, 300, 12000)) for _ in range(50)]
    assistant = traffic.zipf(len(assistants), 0.9)
    seconds, scanned = 0.0, 0
    for session in range(700):
        seconds += traffic.exponential(0.3)
        if traffic.happens(0.5):
            prefix, length, output = documents[scanned % len(documents)], 130, 40
            scanned += 1
        else:
            prefix, length, output = assistants[assistant()], 220, 160
        question = traffic.fresh(traffic.lognormal(length, 0.8, 8, 4000))
        answer = traffic.fresh(traffic.lognormal(output, 0.6, 4, 900))
        traffic.ask(seconds, traffic.text(prefix, question), answer, session)


def phases(traffic: Traffic) -> None:
    """Four phases without anything in common: chats, a scan in rounds, other chats with a system
    prompt each, and the scan again.

    Load that changes its kind over a day: Azure's traces of 2024 (DynamoLLM, HPCA 2025); a day is
    shortened here.
    """
    documents = [traffic.fresh(traffic.lognormal(5200, 0.4, 1500, 16000)) for _ in range(40)]
    _conversations(traffic, 0.0, 50, [traffic.fresh(1200)])
    _rounds(traffic, documents, 4)
    systems = [traffic.fresh(traffic.lognormal(2500, 0.6, 300, 9000)) for _ in range(40)]
    _conversations(traffic, traffic.last_seconds + 5, 50, systems)
    _rounds(traffic, documents, 4)


def _conversations(traffic: Traffic, start: float, count: int, systems: list[Piece]) -> None:
    system = traffic.zipf(len(systems), 1.0)
    for _ in range(count):
        start += traffic.exponential(0.6)
        opening = traffic.fresh(traffic.lognormal(1500, 1.0, 40, 12000))
        text = traffic.text(systems[system()], opening)
        _converse(traffic, text, start, traffic.turns(4.0, 16))


def _converse(traffic: Traffic, text: Text, seconds: float, turns: int) -> None:
    session = traffic.session(f"chat-{traffic.num_requests}", seconds)
    for _ in range(turns):
        text = traffic.extend(text, traffic.fresh(traffic.lognormal(200, 1.0, 10, 4000)))
        text = session.ask(text, traffic.fresh(traffic.lognormal(220, 0.7, 10, 1200)))
        session.pause(reading_seconds(traffic) / 2)


def _rounds(traffic: Traffic, documents: list[Piece], rounds: int) -> None:
    seconds = traffic.last_seconds + 5
    for _ in range(rounds):
        for document in documents:
            seconds += traffic.exponential(0.3)
            prompt = traffic.text(document, traffic.fresh(traffic.lognormal(100, 0.5, 10, 900)))
            traffic.ask(seconds, prompt, traffic.fresh(30), f"scan-{traffic.num_requests}")


def drifting_tenants(traffic: Traffic) -> None:
    """120 tenants with a system prompt each. A few tenants send most requests. They change over
    time, and the rate varies.

    29 of 2,412 clients send 90 % of the requests, and rates change by client: ServeGen (arXiv
    2505.09999).
    """
    tenants = [traffic.fresh(traffic.lognormal(2400, 0.9, 150, 18000)) for _ in range(120)]
    rank = traffic.zipf(len(tenants), 1.1)
    order = traffic.shuffled(range(len(tenants)))
    seconds = 0.0
    for number in range(800):
        if number % 80 == 79:
            order = order[9:] + order[:9]
        seconds += traffic.exponential(0.3 * (1 + 0.7 * math.sin(number / 350)))
        tenant = order[rank()]
        question = traffic.fresh(traffic.lognormal(420, 1.1, 8, 9000))
        answer = traffic.fresh(traffic.lognormal(130, 0.8, 3, 1000))
        traffic.ask(
            seconds, traffic.text(tenants[tenant], question), answer, f"tenant-{tenant}-{number}"
        )


def bursts(traffic: Traffic) -> None:
    """Short requests in bursts: some hundred with one template within seconds. Between bursts,
    there are a few chats.

    Arrivals from a Gamma distribution whose shape changes, far burstier than Poisson, and short
    inputs: BurstGPT (arXiv 2401.17644).
    """
    templates = [traffic.fresh(traffic.lognormal(1500, 0.8, 100, 9000)) for _ in range(36)]
    template = traffic.zipf(len(templates), 0.5)
    seconds = 0.0
    while traffic.num_requests < 700:
        seconds += traffic.exponential(5.0)
        used, moment = templates[template()], seconds
        for _ in range(traffic.turns(22.0, 150)):
            moment += float(traffic.random.gamma(0.25, 0.8))
            prompt = traffic.text(used, traffic.fresh(traffic.lognormal(250, 1.1, 8, 5000)))
            answer = traffic.fresh(traffic.lognormal(90, 0.9, 2, 900))
            traffic.ask(moment, prompt, answer, f"burst-{traffic.num_requests}")
        for _ in range(3):
            opening = traffic.fresh(traffic.lognormal(900, 1.0, 20, 8000))
            start = seconds + traffic.uniform(0, 5)
            _converse(traffic, traffic.text(opening), start, traffic.turns(2.5, 9))
