"""Clients with bad habits that cost a cache something, together with the chats of others. For each
there is a polite client, with requests at the same times and as many new tokens to compute."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from .traffic import Recorded, Text, Traffic

CLIENT: Final = "client"  # all session ids of the client begin with it
_OTHERS: Final = 60
_NUM_CHATS: Final = _OTHERS // 3
_TURNS: Final = 5
_SECONDS: Final = 200.0

Habit = Callable[[Traffic, bool], None]


def aborting(traffic: Traffic, is_bad: bool) -> None:
    """Abort every request, half of them before the prompt is computed, the rest in the answer.

    An aborted request frees its blocks like one that ends, so here it is a request that ends there.
    """

    def ask(seconds: float, asked: Text, text: Text) -> Text:
        answer = traffic.fresh(traffic.lognormal(200, 0.5))
        is_early = traffic.happens(0.5)
        if not is_bad:
            return traffic.ask(seconds, text, answer, CLIENT)
        prompt = asked if is_early else text
        traffic.ask(seconds, prompt, answer.first(1 if is_early else 8), CLIENT)
        return text

    _client(traffic, ask)


def sending_twice(traffic: Traffic, is_bad: bool) -> None:
    """Send every prompt again before there is an answer. The polite client has twice the chats."""

    def ask(seconds: float, _: Text, text: Text) -> Text:
        answer = traffic.fresh(traffic.lognormal(200, 0.5))
        if is_bad:
            traffic.ask(seconds + 0.05, text, traffic.fresh(answer.end), CLIENT)
        return traffic.ask(seconds, text, answer, CLIENT)

    _client(traffic, ask)
    if not is_bad:
        _client(traffic, ask)


def growing(traffic: Traffic, is_bad: bool) -> None:
    """Send a prompt again for every token of it. The polite client sends it once in 64 tokens."""
    for _ in range(3):
        start = traffic.uniform(0, 20)
        common, rest = traffic.fresh(3000), traffic.fresh(640)
        for num in range(1, 641):
            seconds = start + num * _SECONDS / 700
            answer = traffic.fresh(4)
            if is_bad or num % 64 == 0:
                traffic.ask(seconds, traffic.text(common, rest.first(num)), answer, CLIENT)


def sharing_one_session(traffic: Traffic, is_bad: bool) -> None:
    """Say that all chats are one session, and that it ends with each chat."""
    _saying(traffic, lambda chat, turn: _Hint(CLIENT, turn == _TURNS - 1), is_bad)


def renaming_sessions(traffic: Traffic, is_bad: bool) -> None:
    """Say that each request is a session of its own, and that it ends."""
    _saying(traffic, lambda chat, turn: _Hint(f"{CLIENT} {chat} {turn}", True), is_bad)


def ending_early(traffic: Traffic, is_bad: bool) -> None:
    """Say at each request that its session ends, and continue it."""
    _saying(traffic, lambda chat, turn: _Hint(f"{CLIENT} {chat}", True), is_bad)


def keeping_forever(traffic: Traffic, is_bad: bool) -> None:
    """Ask for the highest priority, without an end."""
    _saying(traffic, lambda chat, turn: _Hint(f"{CLIENT} {chat}", priority=100), is_bad)


class _Hint(NamedTuple):
    """The session, end and priority that a request names."""

    session: str
    ends_session: bool = False
    priority: int | None = None


def _saying(traffic: Traffic, hint: Callable[[int, int], _Hint], is_bad: bool) -> None:
    """Add chats whose requests give hints. ``hint`` gets the numbers of the chat and of the turn.
    The polite client only names the session of each chat."""
    requests = iter(range(_NUM_CHATS * _TURNS))

    def ask(seconds: float, _: Text, text: Text) -> Text:
        chat, turn = divmod(next(requests), _TURNS)
        session, ends, priority = hint(chat, turn) if is_bad else _Hint(f"{CLIENT} {chat}")
        answer = traffic.fresh(traffic.lognormal(200, 0.5))
        return traffic.ask(seconds, text, answer, session, ends_session=ends, priority=priority)

    _client(traffic, ask)


HABITS: Final[tuple[Habit, ...]] = (
    aborting,
    sending_twice,
    growing,
    sharing_one_session,
    renaming_sessions,
    ending_early,
    keeping_forever,
)


@dataclass(frozen=True)
class Beside:
    """The others' chats, with a client that has the habit or with a polite one."""

    habit: Habit
    seed: int
    is_bad: bool

    def recorded(self) -> Recorded:
        traffic = Traffic("others", self.seed)
        _others(traffic)
        # The others' requests are drawn before, so they are the same with either client.
        self.habit(traffic, self.is_bad)
        return Recorded(tuple(traffic.lines()), format="mooncake")


def _others(traffic: Traffic) -> None:
    systems = [traffic.fresh(traffic.lognormal(600, 0.5)) for _ in range(4)]
    for number in range(_OTHERS):
        start = number * 2.0
        text = traffic.text(systems[traffic.whole(0, 3)], traffic.fresh(traffic.lognormal(900, 1)))
        for _ in range(traffic.turns(4.0, 12)):
            text = traffic.extend(text, traffic.fresh(traffic.lognormal(250, 0.8)))
            text = traffic.ask(start, text, traffic.fresh(traffic.lognormal(200, 0.6)), number)
            start += 5 + traffic.lognormal(20, 0.8)


def _client(traffic: Traffic, ask: Callable[[float, Text, Text], Text]) -> None:
    """Add a third as many chats as the others have. ``ask`` gets the time, the prompt cut off in
    the middle of its message, and the whole prompt. It returns the text that the next prompt
    continues."""
    for number in range(_NUM_CHATS):
        seconds = number * 6.0 + 1
        text = traffic.text(traffic.fresh(traffic.lognormal(1200, 0.8)))
        for _ in range(_TURNS):
            message = traffic.fresh(traffic.lognormal(300, 0.8))
            half = traffic.extend(text, message.first(max(1, message.end // 2)))
            text = ask(seconds, half, traffic.extend(text, message))
            seconds += 5 + traffic.lognormal(20, 0.8)
