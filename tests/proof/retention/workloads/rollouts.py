"""Many samples of one prompt at the same time."""

from tests.proof.retention.traffic import Traffic


def rollouts(traffic: Traffic) -> None:
    """Reinforcement learning with tools: groups of eight rollouts of one problem at the same time,
    each with some calls. Each problem comes again in the next epoch.

    Groups of equal prompts: GRPO (DeepSeekMath, arXiv 2402.03300). Tool calls in a rollout:
    Search-R1 (arXiv 2503.09516). The update of the weights between epochs, which would empty the
    cache, is left out, as in rollouts that lag the training.
    """
    system = traffic.fresh(800)
    problems = [traffic.fresh(traffic.lognormal(900, 0.8, 80, 8000)) for _ in range(18)]
    start = 0.0
    for epoch in range(2):
        for number, problem in enumerate(traffic.shuffled(problems)):
            start += traffic.exponential(4.0)
            for member in range(8):
                text = traffic.text(system, problem)
                name = f"{epoch}-{number}-{member}"
                session = traffic.session(name, start + traffic.uniform(0, 0.3))
                for _ in range(traffic.turns(2.2, 5)):
                    text = session.ask(text, traffic.fresh(traffic.lognormal(420, 0.6, 20, 2500)))
                    result = traffic.fresh(traffic.lognormal(600, 0.7, 20, 3000))
                    text = traffic.extend(text, result)
                    session.pause(traffic.lognormal(2, 0.7, 1, 30))
                session.end()


def best_of_n(traffic: Traffic) -> None:
    """Search for an answer. Each step is sampled five times at the same time, and the best sample
    is continued.

    Several samples of one prefix, with only one branch that is continued: Tree of Thoughts (NeurIPS
    2023), process reward models with beam search (Snell et al., arXiv 2408.03314).
    """
    examples = [traffic.fresh(traffic.lognormal(1600, 0.4, 400, 5000)) for _ in range(6)]
    example = traffic.zipf(len(examples), 0.7)
    start = 0.0
    for problem in range(17):
        start += traffic.exponential(3.0)
        question = traffic.fresh(traffic.lognormal(300, 0.8, 30, 3000))
        text, search = traffic.text(examples[example()], question), traffic.session(problem, start)
        for step in range(traffic.turns(4.0, 9)):
            samples = [traffic.fresh(traffic.lognormal(260, 0.6, 20, 1500)) for _ in range(5)]
            branches = [search.fork(f"{problem}-{step}-{index}") for index in range(5)]
            pairs = zip(branches, samples, strict=True)
            grown = [branch.ask(text, sample) for branch, sample in pairs]
            # The judge reads each branch to its end. It is the same model.
            verdict = traffic.fresh(25)
            for branch, branch_text in zip(branches, grown, strict=True):
                branch.pause(0.5)
                branch.ask(traffic.extend(branch_text, verdict), traffic.fresh(4))
                branch.end()
            search.join(branches)
            text = grown[traffic.whole(0, 4)]
