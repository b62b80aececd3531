"""Conversations of people with a model."""

from tests.proof.retention.traffic import Piece, Text, Traffic


def reading_seconds(traffic: Traffic) -> float:
    """Return the seconds until the next message: about 100 s in ServeGen's multi-turn requests,
    with a heavy tail."""
    return traffic.lognormal(60, 1.1, 4, 2400)


def chat(traffic: Traffic) -> None:
    """Chats in some applications, each with a system prompt; some begin with an attached file.

    3.5 turns on average and gaps of about 100 s: ServeGen (arXiv 2505.09999). Applications of
    uneven popularity, follow-ups as the main source of hits: Qwen-Bailian's trace of people's chats
    ("KVCache Cache in the Wild", ATC 2025).
    """
    systems = [traffic.fresh(traffic.lognormal(600, 0.8, 80, 4000)) for _ in range(8)]
    system = traffic.zipf(len(systems), 1.1)
    start = 0.0
    for conversation in range(170):
        start += traffic.exponential(1.0)
        text = traffic.text(systems[system()])
        if traffic.happens(0.2):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(6000, 0.7, 800, 24000)))
        session = traffic.session(conversation, start)
        for _ in range(traffic.turns(3.5, 25)):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(110, 1.1, 6, 3000)))
            text = session.ask(text, traffic.fresh(traffic.lognormal(320, 0.8, 8, 1800)))
            session.pause(reading_seconds(traffic))


def regenerated_chat(traffic: Traffic) -> None:
    """Chats in which a quarter of the answers is cut off and asked for again, or rated badly and
    generated again. The conversation continues after the last answer.

    Lengths as in Mooncake's conversations (FAST 2025: many long inputs, 343 generated tokens on
    average), with fewer files. No public trace has regenerated answers; the share is assumed.
    """
    system = traffic.fresh(1400)
    start = 0.0
    for conversation in range(150):
        start += traffic.exponential(1.0)
        text = traffic.text(system, traffic.fresh(traffic.lognormal(700, 1.4, 20, 16000)))
        session = traffic.session(conversation, start)
        for _ in range(traffic.turns(3.0, 15)):
            length = traffic.lognormal(300, 0.8, 12, 2000)
            while traffic.happens(0.25):
                session.ask(text, traffic.fresh(traffic.whole(4, length)))
                session.pause(traffic.uniform(1, 20))
            text = session.ask(text, traffic.fresh(length))
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(140, 1.2, 5, 6000)))
            session.pause(reading_seconds(traffic))


def edited_chat(traffic: Traffic) -> None:
    """Chats in which the last message, or one a few turns ago, is edited. The conversation
    continues from there, and the later turns are dropped.

    Turns and gaps as in ServeGen (arXiv 2505.09999). WildChat (ICLR 2024) and the interfaces of
    chat services have such branches; their share, a fifth of the turns, is assumed.
    """
    systems = [traffic.fresh(traffic.lognormal(1100, 0.5, 200, 4000)) for _ in range(4)]
    system = traffic.zipf(len(systems), 0.9)
    start = 0.0
    for conversation in range(150):
        start += traffic.exponential(1.0)
        asked: list[tuple[Text, Piece]] = []
        text = traffic.text(systems[system()])
        session = traffic.session(conversation, start)
        for _ in range(traffic.turns(4.0, 25)):
            if asked and traffic.happens(0.2):
                back = traffic.whole(1, min(3, len(asked)))
                text, message = asked[-back]
                del asked[-back:]
                kept = message.first(traffic.whole(0, message.end - 1))
                parts = [kept] if kept.end else []
                message = traffic.fresh(traffic.lognormal(60, 1.0, 4, 1500))
                parts.append(message)
            else:
                message = traffic.fresh(traffic.lognormal(240, 1.3, 6, 8000))
                parts = [message]
            asked.append((text, message))
            text = traffic.extend(text, *parts)
            text = session.ask(text, traffic.fresh(traffic.lognormal(380, 0.8, 8, 2000)))
            session.pause(reading_seconds(traffic))


def reasoning_chat(traffic: Traffic) -> None:
    """Chats with a reasoning model. The next prompt has the answer, but not the thoughts before it,
    so no block of an answer comes back.

    Thoughts about four times as long as answers: ServeGen (arXiv 2505.09999) on DeepSeek-R1. The
    chat templates of DeepSeek-R1 and Qwen3 remove the thoughts of earlier turns.
    """
    system = traffic.fresh(350)
    start = 0.0
    for conversation in range(170):
        start += traffic.exponential(1.4)
        text = traffic.text(system)
        if traffic.happens(0.3):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(5000, 0.8, 500, 24000)))
        session = traffic.session(conversation, start)
        for _ in range(traffic.turns(3.5, 20)):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(180, 1.2, 8, 6000)))
            answer = traffic.lognormal(330, 0.7, 20, 1500)
            thoughts = traffic.lognormal(4 * 330, 0.8, 60, 8000)
            session.ask(text, traffic.fresh(thoughts + answer))
            text = traffic.extend(text, traffic.fresh(answer))
            session.pause(reading_seconds(traffic))


def bounded_chat(traffic: Traffic) -> None:
    """Chats with characters whose history is bounded. Beyond 6,000 tokens, the oldest turns are
    dropped, so everything after the character's description is computed again.

    Long conversations with few characters that most people choose: Character.AI ("Optimizing AI
    inference", 2024: a message has 180 messages before it on average); the bound is assumed.
    """
    characters = [traffic.fresh(traffic.lognormal(900, 0.6, 150, 3000)) for _ in range(60)]
    character = traffic.zipf(len(characters), 1.0)
    start = 0.0
    for conversation in range(60):
        start += traffic.exponential(2.0)
        description = characters[character()]
        history = [traffic.fresh(traffic.lognormal(4000, 0.5, 100, 5600))]
        session = traffic.session(conversation, start)
        for _ in range(traffic.turns(11.0, 60)):
            history.append(traffic.fresh(traffic.lognormal(40, 0.9, 3, 400)))
            while sum(piece.end for piece in history) > 6000:
                # Half of the history is dropped, as in clients that cut rarely.
                history = history[len(history) // 2 + 1 :] or history[-1:]
            answer = traffic.fresh(traffic.lognormal(130, 0.6, 10, 600))
            session.ask(traffic.text(description, *history), answer)
            history.append(answer)
            session.pause(traffic.lognormal(25, 0.9, 3, 900))
