"""Keep a prompt in the cache of a server with a priority, over HTTP.

Two prompts are asked once. One has a priority of 80, the other the default of 50. Then other
prompts fill the pool, and both are asked again.

Start the server as ``serve.py`` says, then run this::

    pip install openai
    python examples/priorities.py http://127.0.0.1:8000

It prints::

    priority 50: 0 of 400 prompt tokens from the cache
    priority 80: 384 of 400 prompt tokens from the cache
"""

import random
import sys

from openai import OpenAI


def ask(client: OpenAI, prompt: list[int], priority: int = 50) -> int:
    """Ask for a completion of token ids. Return how many of them came from the cache."""
    answer = client.completions.create(
        model=client.models.list().data[0].id,
        prompt=prompt,
        max_tokens=8,
        extra_body={"vllm_xargs": {"kvoxide_priority": priority}},
    )
    cached: int = answer.usage.prompt_tokens_details.cached_tokens
    return cached


def main() -> None:
    client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused")
    draw = random.Random(1)
    first, second, *others = (draw.choices(range(50, 450), k=400) for _ in range(32))
    ask(client, first)
    ask(client, second, priority=80)
    for prompt in others:
        ask(client, prompt)
    print(f"priority 50: {ask(client, first)} of {len(first)} prompt tokens from the cache")
    print(f"priority 80: {ask(client, second)} of {len(second)} prompt tokens from the cache")


if __name__ == "__main__":
    main()
