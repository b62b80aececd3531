"""Coding agents. All agents of a fleet share a system prompt and tools. The history of a session
follows, with its answers and the results of tools.

A step has 154,000 prompt tokens and 520 answer tokens on average. 96 % of the prompt were in the
step before. A session has nine messages of a person and 74 steps after tools, with half of the
sessions below 15 steps: TraceLab (arXiv 2606.30560). Lengths are a sixth of these, and sessions a
third.
"""

from tests.proof.retention.traffic import Piece, Session, Text, Traffic


def coding_agents(traffic: Traffic) -> None:
    """Agents that work alone: all prompts of a session continue each other.

    TraceLab (arXiv 2606.30560), as described above.
    """
    fleet = _Fleet(traffic)
    start = 0.0
    for task in range(26):
        start += traffic.exponential(8.0)
        session, text = fleet.session(task, start)
        for _ in range(traffic.turns(4.0, 12)):
            text = _work(traffic, session, text, traffic.turns(6.5, 40))
            text = _message(traffic, session, text)
        session.end()


def compressing_agents(traffic: Traffic) -> None:
    """Agents whose history is replaced by a summary when it gets long. The summary is asked for at
    the end of the history. The next prompt has the task, the summary and the last steps.

    A summary every 21 steps, with the last 10 kept: OpenHands' condenser as in "The Complexity
    Trap" (arXiv 2508.21433). Steps as in TraceLab (arXiv 2606.30560).
    """
    fleet = _Fleet(traffic)
    instruction = traffic.fresh(250)
    start = 0.0
    for task in range(20):
        start += traffic.exponential(8.0)
        session, first = fleet.session(task, start)
        steps: list[tuple[Piece, Piece]] = []
        text = first
        for _ in range(traffic.turns(34.0, 90)):
            if len(steps) > 31:
                summary = traffic.fresh(traffic.lognormal(900, 0.3, 300, 2500))
                session.ask(traffic.extend(text, instruction), summary)
                steps = steps[-10:]
                pieces = [piece for step in steps for piece in step]
                text = traffic.extend(first, summary, *pieces)
            steps.append((_call(traffic), _result(traffic)))
            text = traffic.extend(session.ask(text, steps[-1][0]), steps[-1][1])
            session.pause(_tool_seconds(traffic))
        session.end()


def agents_with_subagents(traffic: Traffic) -> None:
    """Agents that send parts of their task to two to four subagents at a time and wait for all.
    Subagents share a prompt of their own, not the agent's history. Only their last answers return.

    Subagents in parallel, three to five for a question: "How we built our multi-agent research
    system" (Anthropic, 2025). Four subagents that read code at 13,000 tokens each, for a parent of
    26,000: an example session of kv-cache-tester (2025). Steps as in TraceLab.
    """
    fleet = _Fleet(traffic)
    shared = traffic.fresh(2300)
    start = 0.0
    for task in range(16):
        start += traffic.exponential(12.0)
        session, text = fleet.session(task, start)
        for round_number in range(traffic.turns(3.0, 7)):
            text = _work(traffic, session, text, traffic.turns(3.0, 12))
            subagents, answers = [], []
            for number in range(traffic.whole(2, 4)):
                subagent = session.fork(f"{task}-{round_number}-{number}")
                order = traffic.fresh(traffic.lognormal(300, 0.6, 40, 1500))
                own = _work(traffic, subagent, traffic.text(shared, order), traffic.turns(3.5, 15))
                answers.append(traffic.fresh(traffic.lognormal(350, 0.6, 60, 1500)))
                subagent.ask(own, answers[-1])
                subagent.end()
                subagents.append(subagent)
            session.join(subagents)
            text = traffic.extend(text, *answers)
        session.ask(text, traffic.fresh(traffic.lognormal(400, 0.6, 60, 2000)))
        session.end()


def agents_with_parallel_tools(traffic: Traffic) -> None:
    """Agents that call several tools at a time and wait for the slowest. Some tools ask the same
    model about a page that they fetched, with a short prompt in common.

    1.2 calls a step, two in a tenth of the steps and four in a hundredth: TraceLab (arXiv
    2606.30560). A quarter of the calls reads a page with the same model; this share is assumed.
    """
    fleet = _Fleet(traffic)
    reader = traffic.fresh(420)
    start = 0.0
    for task in range(24):
        start += traffic.exponential(6.0)
        session, text = fleet.session(task, start)
        for step in range(traffic.turns(15.0, 60)):
            text = session.ask(text, _call(traffic))
            num_calls = traffic.turns(1.6, 6)
            pages = []
            for number in range(num_calls):
                if traffic.happens(0.75):
                    text = traffic.extend(text, _result(traffic))
                    continue
                page = traffic.fresh(traffic.lognormal(3200, 0.8, 300, 15000))
                call = session.fork(f"{task}-{step}-{number}")
                call.pause(_tool_seconds(traffic))
                answer = traffic.fresh(traffic.lognormal(220, 0.6, 30, 900))
                call.ask(traffic.text(reader, page), answer)
                call.end()
                pages.append(call)
                text = traffic.extend(text, answer)
            if pages:
                session.join(pages)
            else:
                session.pause(max(_tool_seconds(traffic) for _ in range(num_calls)))
        session.end()


def abandoned_agents(traffic: Traffic) -> None:
    """Agents and dead sessions: a fifth of the sessions fill a long context within a minute and
    end. The others continue for long, with the pauses of people, and share the pool with them.

    Steps as in TraceLab (arXiv 2606.30560), where half of the sessions have a single message of a
    person. The share of dead sessions is assumed.
    """
    fleet = _Fleet(traffic)
    start = 0.0
    for task in range(40):
        start += traffic.exponential(7.0)
        session, text = fleet.session(task, start)
        if task % 5 == 0:
            dump = traffic.fresh(traffic.lognormal(22_000, 0.3, 9000, 40_000))
            _work(traffic, session, traffic.extend(text, dump), 4)
        else:
            for _ in range(traffic.turns(5.0, 14)):
                text = _work(traffic, session, text, traffic.turns(3.5, 16))
                text = _message(traffic, session, text)
        session.end()


class _Fleet:
    """Two kinds of agents, each with its system prompt and tools."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._prefixes = [traffic.fresh(3800), traffic.fresh(2100)]

    def session(self, task: int, start: float) -> tuple[Session, Text]:
        """Return the session of a task, and its first prompt."""
        traffic = self._traffic
        prefix = self._prefixes[0 if traffic.happens(0.7) else 1]
        first = traffic.fresh(traffic.lognormal(700, 0.9, 60, 6000))
        return traffic.session(task, start), traffic.text(prefix, first)


def _work(traffic: Traffic, session: Session, text: Text, steps: int) -> Text:
    """Ask for a number of steps. Each has a call, and then its result."""
    for _ in range(steps):
        text = traffic.extend(session.ask(text, _call(traffic)), _result(traffic))
        session.pause(_tool_seconds(traffic))
    return text


def _message(traffic: Traffic, session: Session, text: Text) -> Text:
    """Answer without a call. A person reads the answer and writes the next message."""
    text = session.ask(text, traffic.fresh(traffic.lognormal(260, 0.8, 20, 2000)))
    session.pause(traffic.lognormal(45, 1.3, 3, 1200))
    return traffic.extend(text, traffic.fresh(traffic.lognormal(80, 1.0, 5, 2000)))


def _call(traffic: Traffic) -> Piece:
    return traffic.fresh(traffic.lognormal(55, 0.9, 8, 1500))


def _result(traffic: Traffic) -> Piece:
    return traffic.fresh(traffic.lognormal(240, 1.4, 6, 9000))


def _tool_seconds(traffic: Traffic) -> float:
    return traffic.lognormal(1.2, 1.4, 0, 300) + traffic.uniform(0.05, 1.0)
