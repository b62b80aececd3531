"""Serve a model with vLLM on kvoxide, and see that a prompt comes from its cache.

``KVOXIDE=require`` lets the server start only if kvoxide manages the KV cache. Further arguments go
to ``vllm serve``. The server has a small pool here, so that ``priorities.py`` can fill it.

Run it::

    pip install vllm . openai
    export KVOXIDE_POLICY=adaptive KVOXIDE_RECORD=traffic
    python examples/serve.py Qwen/Qwen3-0.6B --block-size 32 --num-gpu-blocks-override 100 \\
        --max-model-len 1024

It prints::

    the server is ready at http://127.0.0.1:8000
    from the cache the first time: 0 of 400 prompt tokens
    from the cache the second time: 384 of 400 prompt tokens
    press Ctrl-C to stop the server
"""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

from openai import OpenAI

PORT = int(os.environ.get("PORT", "8000"))
URL = f"http://127.0.0.1:{PORT}"


def start(model: str, options: list[str]) -> "subprocess.Popen[bytes]":
    """Start the server. Its log goes to ``server.log``."""
    command = ["vllm", "serve", model, "--port", str(PORT), "--enable-prompt-tokens-details"]
    with open("server.log", "wb") as log:
        return subprocess.Popen(
            [*command, *options], env=os.environ | {"KVOXIDE": "require"}, stdout=log, stderr=log
        )


def wait_until_ready(server: "subprocess.Popen[bytes]") -> None:
    """Wait for the server. A minute is usual: it loads the model."""
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"{URL}/health")
            return
        except urllib.error.URLError:
            time.sleep(1)
    sys.exit("the server did not start: see server.log")


def ask(client: OpenAI, prompt: list[int]) -> str:
    """Ask for a completion of token ids. Return how many came from the cache."""
    model = client.models.list().data[0].id
    answer = client.completions.create(model=model, prompt=prompt, max_tokens=8, temperature=0)
    usage = answer.usage
    return f"{usage.prompt_tokens_details.cached_tokens} of {usage.prompt_tokens} prompt tokens"


def main() -> None:
    model, *options = sys.argv[1:]
    server = start(model, options)
    try:
        wait_until_ready(server)
        print(f"the server is ready at {URL}")
        client = OpenAI(base_url=f"{URL}/v1", api_key="unused")
        prompt = list(range(50, 450))
        print("from the cache the first time:", ask(client, prompt))
        print("from the cache the second time:", ask(client, prompt))
        print("press Ctrl-C to stop the server", flush=True)
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
