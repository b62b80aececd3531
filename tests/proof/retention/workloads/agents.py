"""Programs that call a model again and again, with the results of the last call."""

from tests.proof.retention.traffic import Session, Traffic


def tool_agents(traffic: Traffic) -> None:
    """Requests of many applications with long prompts of tools. Most applications make one call.

    8,596 tokens of input and 182 of output on average, 59 % of them reusable: Mooncake's tool and
    agent trace (FAST 2025). Most requests use few prompts: Preble's ToolBench (ICLR 2025).
    """
    tools = [traffic.fresh(traffic.lognormal(4600, 0.7, 500, 20000)) for _ in range(50)]
    tool = traffic.zipf(len(tools), 0.9)
    start = 0.0
    while traffic.num_requests < 600:
        start += traffic.exponential(0.4)
        session = traffic.session(traffic.num_requests, start)
        text = traffic.text(tools[tool()])
        calls = traffic.turns(3.0, 12) if traffic.happens(0.3) else 1
        for _ in range(calls):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(1300, 1.1, 30, 24000)))
            text = session.ask(text, traffic.fresh(traffic.lognormal(130, 0.8, 5, 1500)))
            session.pause(traffic.lognormal(5, 1.1, 1, 300))
        session.end()


def team_of_agents(traffic: Traffic) -> None:
    """An orchestrator and four specialists per task. The orchestrator keeps a ledger of the whole
    task. Each specialist has its own context, and gets the answers of the others.

    Roles and order as in Magentic-One (arXiv 2411.04468); lengths are assumed.
    """
    roles = [traffic.fresh(traffic.lognormal(1500, 0.5, 500, 5000)) for _ in range(5)]
    ledger_question = traffic.fresh(420)
    specialist = traffic.zipf(4, 0.8)
    start = 0.0
    for task in range(34):
        start += traffic.exponential(2.5)
        question = traffic.fresh(traffic.lognormal(500, 0.9, 40, 5000))
        texts = [traffic.text(role, question) for role in roles]
        leader = traffic.session(task, start)
        specialists: dict[int, Session] = {}
        for _ in range(traffic.turns(9.0, 25)):
            # The ledger is asked for at the end of the context, and does not stay in it.
            ledger = traffic.fresh(traffic.lognormal(230, 0.4, 60, 800))
            leader.ask(traffic.extend(texts[0], ledger_question), ledger)
            leader.pause(0.5)
            chosen = 1 + specialist()
            order = traffic.fresh(traffic.lognormal(70, 0.6, 10, 400))
            text = traffic.extend(texts[chosen], order)
            if traffic.happens(0.5):
                found = traffic.fresh(traffic.lognormal(2200, 1.0, 50, 12000))
                text = traffic.extend(text, found)
            answer = traffic.fresh(traffic.lognormal(260, 0.8, 20, 1500))
            specialists[chosen] = leader.fork(f"{task}-{chosen}")
            texts[chosen] = specialists[chosen].ask(text, answer)
            for other in {0, 1, 2, 3, 4} - {chosen}:
                texts[other] = traffic.extend(texts[other], order, answer)
            leader.join([specialists[chosen]])
            leader.pause(traffic.lognormal(4, 0.8, 1, 90))
        leader.end()
        for session in specialists.values():
            session.end()
