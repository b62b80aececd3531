"""Chats over HTTP, as people have them: begun at random times, answered as a stream, continued."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
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


def chat(url: str, model: str, chats: Chats) -> list[Answer]:
    """Have all chats. Return the answers in the order in which they came."""
    return asyncio.run(_chat(url, model, chats))


async def _chat(url: str, model: str, chats: Chats) -> list[Answer]:
    rng = random.Random(chats.seed)
    prompts = [random_tokens(rng, chats.system) for _ in range(NUM_SYSTEM_PROMPTS)]
    answers: list[Answer] = []
    aiohttp = import_module("aiohttp")
    limits = {
        # The server closes an idle connection, perhaps just when the next request is sent.
        "connector": aiohttp.TCPConnector(limit=0, force_close=True),
        "timeout": aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
    }
    async with aiohttp.ClientSession(url, **limits) as session, asyncio.TaskGroup() as tasks:
        for number in range(chats.num):
            own = random.Random(rng.random())
            ask = partial(_ask, session, model, number)
            tasks.create_task(_talk(ask, chats, rng.choice(prompts), own, answers))
            await asyncio.sleep(rng.expovariate(chats.per_second))
    return answers


async def _talk(
    ask: Callable[[int, list[int], int], Awaitable[Answer]],
    chats: Chats,
    said: list[int],
    rng: random.Random,
    answers: list[Answer],
) -> None:
    for turn in range(rng.randint(1, chats.turns)):
        if turn:
            await asyncio.sleep(rng.expovariate(1 / chats.pause))
        said = said + random_tokens(rng, rng.randint(1, chats.message))
        answer = await ask(turn, said, rng.randint(1, chats.answer))
        answers.append(answer)
        said = said + answer.tokens


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
