"""Programs that call a model again and again, with the results of the last call."""

from tests.proof.retention.traffic import Text, Traffic

from .chats import TOKEN_SECONDS


def coding_agents(traffic: Traffic) -> None:
    """Coding agents. All share one long prefix of instructions and tools. Their context then grows
    by each call and its result, until it is compacted into a summary.

    Contexts have some 10,000 to 100,000 tokens. The last call had nearly all of them, and gaps are
    seconds: LMCache's traces of coding agents, SWE-agent (NeurIPS 2024). Sizes are halved.
    """
    prefixes = [traffic.fresh(9000), traffic.fresh(4200)]
    start = 0.0
    for task in range(70):
        start += traffic.exponential(3.0)
        prefix = prefixes[0 if traffic.happens(0.7) else 1]
        task_text = traffic.text(prefix, traffic.fresh(traffic.lognormal(900, 0.8, 100, 6000)))
        text, seconds = task_text, start
        for _ in range(traffic.turns(20.0, 70)):
            if text.num_tokens > 30_000:
                summary = traffic.fresh(traffic.lognormal(1100, 0.3, 400, 2500))
                instruction = traffic.fresh(300)
                traffic.ask(seconds, traffic.extend(text, instruction), summary, task)
                seconds += summary.end * TOKEN_SECONDS + 1
                text = traffic.extend(task_text, summary)
            call = traffic.fresh(traffic.lognormal(120, 0.9, 15, 2500))
            text = traffic.ask(seconds, text, call, task)
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(450, 1.2, 10, 9000)))
            waits = traffic.lognormal(90, 1.0, 10, 900) if traffic.happens(0.04) else 0
            seconds += call.end * TOKEN_SECONDS + traffic.lognormal(3, 1.0, 1, 120) + waits


def tool_agents(traffic: Traffic) -> None:
    """Requests of many applications with long prompts of tools. Most applications make one call.

    8,596 tokens of input and 182 of output on average, 59 % of them reusable: Mooncake's tool and
    agent trace (FAST 2025). Most requests use few prompts: Preble's ToolBench (ICLR 2025).
    """
    tools = [traffic.fresh(traffic.lognormal(4600, 0.7, 500, 20000)) for _ in range(90)]
    tool = traffic.zipf(len(tools), 0.9)
    start, session = 0.0, 0
    while traffic.num_requests < 1500:
        start += traffic.exponential(0.4)
        session += 1
        text, seconds = traffic.text(tools[tool()]), start
        calls = traffic.turns(3.0, 12) if traffic.happens(0.3) else 1
        for _ in range(calls):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(1300, 1.1, 30, 24000)))
            answer = traffic.fresh(traffic.lognormal(130, 0.8, 5, 1500))
            text = traffic.ask(seconds, text, answer, session)
            seconds += answer.end * TOKEN_SECONDS + traffic.lognormal(5, 1.1, 1, 300)


def team_of_agents(traffic: Traffic) -> None:
    """An orchestrator and four specialists per task. The orchestrator keeps a ledger of the whole
    task. Each specialist has its own context, and gets the answers of the others.

    Roles and order as in Magentic-One (arXiv 2411.04468); lengths are assumed.
    """
    roles = [traffic.fresh(traffic.lognormal(1500, 0.5, 500, 5000)) for _ in range(5)]
    ledger_question = traffic.fresh(420)
    specialist = traffic.zipf(4, 0.8)
    start = 0.0
    for task in range(75):
        start += traffic.exponential(2.5)
        question = traffic.fresh(traffic.lognormal(500, 0.9, 40, 5000))
        texts = [traffic.text(role, question) for role in roles]
        seconds = start
        for _ in range(traffic.turns(9.0, 25)):
            # The ledger is asked for at the end of the context, and does not stay in it.
            ledger = traffic.fresh(traffic.lognormal(230, 0.4, 60, 800))
            asked = traffic.extend(texts[0], ledger_question)
            traffic.ask(seconds, asked, ledger, f"{task}-0")
            seconds += ledger.end * TOKEN_SECONDS + 0.5
            chosen = 1 + specialist()
            order = traffic.fresh(traffic.lognormal(70, 0.6, 10, 400))
            text = traffic.extend(texts[chosen], order)
            if traffic.happens(0.5):
                found = traffic.fresh(traffic.lognormal(2200, 1.0, 50, 12000))
                text = traffic.extend(text, found)
            answer = traffic.fresh(traffic.lognormal(260, 0.8, 20, 1500))
            texts[chosen] = traffic.ask(seconds, text, answer, f"{task}-{chosen}")
            for other in {0, 1, 2, 3, 4} - {chosen}:
                texts[other] = traffic.extend(texts[other], order, answer)
            seconds += answer.end * TOKEN_SECONDS + traffic.lognormal(4, 0.8, 1, 90)


def rollouts(traffic: Traffic) -> None:
    """Reinforcement learning with tools: groups of eight rollouts of one problem at the same time,
    each with some calls. Each problem comes again in the next epoch.

    Groups of equal prompts: GRPO (DeepSeekMath, arXiv 2402.03300). Tool calls in a rollout:
    Search-R1 (arXiv 2503.09516). The update of the weights between epochs, which would empty the
    cache, is left out, as in rollouts that lag the training.
    """
    system = traffic.fresh(800)
    problems = [traffic.fresh(traffic.lognormal(900, 0.8, 80, 8000)) for _ in range(44)]
    start = 0.0
    for epoch in range(3):
        for number, problem in enumerate(traffic.shuffled(problems)):
            start += traffic.exponential(4.0)
            for member in range(8):
                text: Text = traffic.text(system, problem)
                seconds = start + traffic.uniform(0, 0.3)
                for _ in range(traffic.turns(2.2, 5)):
                    answer = traffic.fresh(traffic.lognormal(420, 0.6, 20, 2500))
                    text = traffic.ask(seconds, text, answer, f"{epoch}-{number}-{member}")
                    result = traffic.fresh(traffic.lognormal(600, 0.7, 20, 3000))
                    text = traffic.extend(text, result)
                    seconds += answer.end * TOKEN_SECONDS + traffic.lognormal(2, 0.7, 1, 30)


def best_of_n(traffic: Traffic) -> None:
    """Search for an answer. Each step is sampled five times at the same time, and the best sample
    is continued.

    Several samples of one prefix, with only one branch that is continued: Tree of Thoughts (NeurIPS
    2023), process reward models with beam search (Snell et al., arXiv 2408.03314).
    """
    examples = [traffic.fresh(traffic.lognormal(1600, 0.4, 400, 5000)) for _ in range(6)]
    example = traffic.zipf(len(examples), 0.7)
    start = 0.0
    for problem in range(95):
        start += traffic.exponential(3.0)
        question = traffic.fresh(traffic.lognormal(300, 0.8, 30, 3000))
        text, seconds = traffic.text(examples[example()], question), start
        for step in range(traffic.turns(4.0, 9)):
            samples = [traffic.fresh(traffic.lognormal(260, 0.6, 20, 1500)) for _ in range(5)]
            grown = [
                traffic.ask(seconds, text, sample, f"{problem}-{step}-{index}")
                for index, sample in enumerate(samples)
            ]
            seconds += max(sample.end for sample in samples) * TOKEN_SECONDS + 0.5
            # The judge reads each branch to its end. It is the same model.
            verdict = traffic.fresh(25)
            for index, branch in enumerate(grown):
                asked = traffic.extend(branch, verdict)
                traffic.ask(seconds, asked, traffic.fresh(4), f"{problem}-{step}-{index}")
            seconds += 1.0
            text = grown[traffic.whole(0, 4)]
