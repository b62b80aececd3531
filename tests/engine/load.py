"""Chats over HTTP, as people have them: begun at random times, answered as a stream, continued."""

import asyncio
import heapq
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from .server import REQUEST_TIMEOUT
from .workload import random_tokens

NUM_SYSTEM_PROMPTS = 4


@dataclass(frozen=True)
class Chats:
    """``num`` chats that begin ``per_second`` on average, as a Poisson process. Lengths are in
    tokens, and are the maximum of what is drawn. ``pause`` is the time in seconds between an answer
    and the next turn, on average."""

    seed: int
    num: int
    per_second: float
    turns: int = 4
    pause: float = 0.5
    system: int = 200
    message: int = 150
    answer: int = 24

    @property
    def longest(self) -> int:
        """The longest prompt with its answer."""
        return self.system + self.turns * (self.message + self.answer)


@dataclass(frozen=True)
class Answer:
    """One answer, to a turn of a chat. Times are in seconds since the question was sent."""

    chat: int
    turn: int
    tokens: list[int]
    num_prompt_tokens: int
    num_cached_tokens: int
    first_token: float


def chat(url: str, model: str, chats: Chats, in_order: bool = False) -> list[Answer]:
    """Have all chats. Return the answers in the order in which they came. With ``in_order``, each
    turn waits for the answer to the one before, so that the seed alone determines their order."""
    return asyncio.run(_chat(url, model, chats, in_order))


async def _chat(url: str, model: str, chats: Chats, in_order: bool) -> list[Answer]:
    aiohttp = import_module("aiohttp")
    limits = {
        # The server closes an idle connection, perhaps just when the next request is sent.
        "connector": aiohttp.TCPConnector(limit=0, force_close=True),
        "timeout": aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
    }
    async with aiohttp.ClientSession(url, **limits) as session:
        talks = list(_talks(chats, partial(_ask, session, model)))
        return await (_in_order(talks) if in_order else _at_their_times(talks))


async def _at_their_times(talks: list["_Talk"]) -> list[Answer]:
    answers: list[Answer] = []

    async def talk(one: _Talk) -> None:
        await asyncio.sleep(one.pause)
        while not one.is_over:
            answers.append(await one.next_answer())
            await asyncio.sleep(one.pause)

    async with asyncio.TaskGroup() as tasks:
        for one in talks:
            tasks.create_task(talk(one))
    return answers


async def _in_order(talks: list["_Talk"]) -> list[Answer]:
    answers: list[Answer] = []
    waiting = [(one.pause, one.number) for one in talks]
    heapq.heapify(waiting)
    while waiting:
        now, number = heapq.heappop(waiting)
        one = talks[number]
        answers.append(await one.next_answer())
        if not one.is_over:
            heapq.heappush(waiting, (now + one.pause, number))
    return answers


def _talks(chats: Chats, ask: "_Ask") -> Iterator["_Talk"]:
    rng = random.Random(chats.seed)
    prompts = [random_tokens(rng, chats.system) for _ in range(NUM_SYSTEM_PROMPTS)]
    begins = 0.0
    for number in range(chats.num):
        own, prompt = random.Random(rng.random()), rng.choice(prompts)
        yield _Talk(number, chats, ask, own, prompt, own.randint(1, chats.turns), begins)
        begins += rng.expovariate(chats.per_second)


_Ask = Callable[[int, int, list[int], int], Awaitable[Answer]]


@dataclass
class _Talk:
    """A chat that is not over yet. ``pause`` is the time in seconds before its next turn."""

    number: int
    chats: Chats
    ask: _Ask
    rng: random.Random
    said: list[int]
    num_turns: int
    pause: float
    turn: int = 0

    @property
    def is_over(self) -> bool:
        return self.turn == self.num_turns

    async def next_answer(self) -> Answer:
        chats, rng = self.chats, self.rng
        self.said = self.said + random_tokens(rng, rng.randint(1, chats.message))
        answer = await self.ask(self.number, self.turn, self.said, rng.randint(1, chats.answer))
        self.said = self.said + answer.tokens
        self.turn += 1
        self.pause = 0.0 if self.is_over else rng.expovariate(1 / chats.pause)
        return answer


async def _ask(
    session: Any, model: str, chat: int, turn: int, prompt: list[int], max_tokens: int
) -> Answer:
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent, first = time.perf_counter(), None
    tokens: list[int] = []
    usage: dict[str, Any] = {}
    async with session.post("/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        async for part in _parts(response):
            first = first or time.perf_counter()
            for choice in part["choices"]:
                tokens += choice["token_ids"]
            usage = part.get("usage") or usage
    assert first is not None
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answer(chat, turn, tokens, usage["prompt_tokens"], cached, first - sent)


async def _parts(response: Any) -> AsyncIterator[dict[str, Any]]:
    """Return the events of a stream."""
    async for line in response.content:
        data = line.removeprefix(b"data: ").strip()
        if data and data != b"[DONE]":
            yield json.loads(data)
