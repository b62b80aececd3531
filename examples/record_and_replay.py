"""Record the traffic of a server, and play it again in pools of other sizes.

A server with ``KVOXIDE_RECORD=traffic`` writes when requests came, how long they were and which
began alike, but none of their content. This program has chats with such a server, then it plays the
recording with ``kvoxide replay``. The recording also has the 384 hit tokens of ``serve.py``.

Start the server as ``serve.py`` says, then run this::

    pip install '.[cli]' openai
    python examples/record_and_replay.py http://127.0.0.1:8000 traffic

It prints::

    the server: 4608 hit tokens in these chats
    a pool of 40 blocks: 992 hit tokens in the recording
    a pool of 60 blocks: 2336 hit tokens in the recording
    a pool of 100 blocks: 4992 hit tokens in the recording
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from openai import OpenAI

CHATS = 8
TURNS = 4
POOL_SIZES = "40,60,100"


def chat_with(url: str) -> int:
    """Have chats, a turn of each after the other. Return how many prompt tokens were hit."""
    client = OpenAI(base_url=f"{url}/v1", api_key="unused")
    model = client.models.list().data[0].id
    draw = random.Random(2)
    chats = [draw.choices(range(50, 450), k=100) for _ in range(CHATS)]
    hits = 0
    for _ in range(TURNS):
        for chat in chats:
            answer = client.completions.create(model=model, prompt=chat, max_tokens=8)
            hits += answer.usage.prompt_tokens_details.cached_tokens
            chat += draw.choices(range(50, 450), k=100)
    return hits


def replay(folder: str) -> dict[int, int]:
    """Play a recording. Return the hit tokens for each pool size."""
    command = ["kvoxide", "replay", folder, "--blocks", POOL_SIZES, "--policy", "adaptive"]
    with tempfile.TemporaryDirectory() as results:
        file = Path(results) / "results.json"
        subprocess.run([*command, "--quiet", "--json", str(file)], check=True)
        record = json.loads(file.read_text())
    return {it["blocks"]: it["hit_tokens"] for it in record["results"] if it["blocks"]}


def main() -> None:
    url, folder = sys.argv[1:]
    print(f"the server: {chat_with(url)} hit tokens in these chats")
    # The server writes twice a second.
    time.sleep(1)
    for blocks, hits in replay(folder).items():
        print(f"a pool of {blocks} blocks: {hits} hit tokens in the recording")


if __name__ == "__main__":
    main()
