"""Prompts whose shared part is a document, examples or a file."""

from tests.proof.retention.traffic import Traffic


def retrieval(traffic: Traffic) -> None:
    """Retrieval-augmented answers: a system prompt, three passages in order of relevance, and the
    question. Only equal passages in an equal order share a prefix.

    A few documents are in most requests, with passages of some hundred tokens: RAGCache (arXiv
    2404.12457). Order decides what is shared: the same paper, and CacheBlend (EuroSys 2025).
    """
    system = traffic.fresh(450)
    passages = [traffic.fresh(traffic.lognormal(900, 0.5, 120, 4000)) for _ in range(500)]
    topic = traffic.zipf(150, 1.0)
    seconds = 0.0
    for session in range(700):
        seconds += traffic.exponential(0.22)
        about = topic()
        # The relevant passages of a topic come in nearly the same order for most of its questions.
        found = [about]
        for rank in range(1, 4):
            near = 150 + (about * 2 + rank) % 350
            found.append(near if traffic.happens(0.6) else traffic.whole(150, 499))
        question = traffic.fresh(traffic.lognormal(45, 0.8, 5, 600))
        prompt = traffic.text(system, *(passages[number] for number in found), question)
        traffic.ask(seconds, prompt, traffic.fresh(traffic.lognormal(140, 0.7, 5, 900)), session)


def long_documents(traffic: Traffic) -> None:
    """Long documents. One reader asks several questions about each within minutes, and other
    readers ask some later.

    23,000 tokens and 18 requests a document on average, 91 % shared: LooGLE as in Preble (ICLR
    2025). Sizes are halved, questions fewer.
    """
    system = traffic.fresh(180)
    documents = [traffic.fresh(traffic.lognormal(10500, 0.5, 2500, 36000)) for _ in range(60)]
    popular = traffic.zipf(len(documents), 0.6)
    start = 0.0
    for reader in range(110):
        start += traffic.exponential(1.5)
        document = documents[reader // 2 if traffic.happens(0.5) else popular()]
        prefix, session = traffic.text(system, document), traffic.session(reader, start)
        for _ in range(traffic.turns(6.0, 20)):
            question = traffic.fresh(traffic.lognormal(40, 0.7, 6, 400))
            answer = traffic.fresh(traffic.lognormal(90, 0.9, 3, 800))
            session.ask(traffic.extend(prefix, question), answer)
            session.pause(traffic.lognormal(35, 0.9, 2, 900))


def few_shot(traffic: Traffic) -> None:
    """Evaluations: five examples and a question. All questions of a subject come in a row, from
    several jobs at a time. Each job repeats its subjects for the next checkpoint.

    57 subjects, at least 100 questions each, five examples: MMLU (ICLR 2021), which is a workload
    in SGLang (NeurIPS 2024) too. Subjects and questions are fewer here.
    """
    jobs = 3
    subjects = [
        [traffic.fresh(traffic.lognormal(1700, 0.7, 300, 9000)) for _ in range(12)]
        for _ in range(jobs)
    ]
    questions = [[traffic.whole(5, 28) for _ in subjects[job]] for job in range(jobs)]
    for job in range(jobs):
        seconds = job * 10.0
        for epoch in range(2):
            for subject, examples in enumerate(subjects[job]):
                for number in range(questions[job][subject]):
                    seconds += traffic.exponential(0.25)
                    question = traffic.fresh(traffic.lognormal(110, 0.7, 20, 1500))
                    prompt = traffic.text(examples, question)
                    answer = traffic.fresh(1 if traffic.happens(0.7) else 120)
                    traffic.ask(seconds, prompt, answer, f"{job}-{epoch}-{subject}-{number}")


def completion(traffic: Traffic) -> None:
    """Completion of code in an editor: the text before the cursor, then some after it. The cursor
    moves by some tokens per request, or jumps. From the change on, the text is new.

    1,500 tokens of input and 13 of output in the middle: the coding service in Azure's trace of
    2023 (Splitwise, ISCA 2024). The movement of the cursor is assumed.
    """
    repositories = [traffic.fresh(traffic.lognormal(700, 0.5, 100, 2500)) for _ in range(25)]
    repository = traffic.zipf(len(repositories), 0.8)
    start = 0.0
    for editor in range(50):
        start += traffic.exponential(1.0)
        header = repositories[repository()]
        file = [traffic.fresh(traffic.lognormal(2600, 0.9, 100, 20000))]
        cursor, session = traffic.whole(1, file[0].end), traffic.session(editor, start)
        for _ in range(traffic.turns(15.0, 80)):
            if traffic.happens(0.12):
                cursor = traffic.whole(1, sum(piece.end - piece.start for piece in file))
            before, left = [], cursor
            for piece in file:
                if left > 0:
                    before.append(piece.first(left))
                    left -= before[-1].end - before[-1].start
            suffix = traffic.fresh(traffic.lognormal(300, 0.4, 20, 800))
            answer = traffic.fresh(traffic.lognormal(14, 0.7, 1, 120))
            session.ask(traffic.text(header, *before, suffix), answer)
            typed = traffic.fresh(traffic.lognormal(20, 0.9, 2, 300))
            file = [*before, typed]
            cursor += typed.end
            session.pause(traffic.lognormal(6, 1.2, 1, 600))
