"""Find the least memory for the KV cache that serves a trace within targets.

The trace is the sample that comes with kvoxide, and the model has the sizes of Llama 3.1 8B. For
your own plan, record a server (``record_and_replay.py``) and name the folder of its model.

Run it::

    pip install '.[cli]'
    python examples/plan.py

It prints::

    30 GiB meets the targets: 49.1% of prompt tokens from the cache, first token after 0.83 s (p99)
    40 GiB meets the targets: 58.2% of prompt tokens from the cache, first token after 0.80 s (p99)
    60 GiB meets the targets: 65.4% of prompt tokens from the cache, first token after 0.68 s (p99)
    20 GiB misses the targets: 37.0% of prompt tokens from the cache, first token after 0.90 s (p99)
    cheapest: 30 GiB for the KV cache of one GPU
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
MEMORY = "20GiB,30GiB,40GiB,60GiB"
TARGETS = {"ttft_p99": "<1s", "hit_share": ">45%"}


def plan(folder: Path) -> dict[str, Any]:
    """Run ``kvoxide plan``. Return what it writes with ``--json``."""
    (folder / "config.json").write_text(json.dumps(MODEL))
    command = ["kvoxide", "plan", "sample", "--model", str(folder), "--memory", MEMORY]
    command += ["--instances", "1", "--policy", "adaptive", "--all", "--quiet"]
    for figure, limit in TARGETS.items():
        command += ["--target", figure + limit]
    subprocess.run([*command, "--json", str(folder / "plan.json")], check=True)
    report: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return report


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = plan(Path(folder))
    for verdict in report["verdicts"]:
        hits, wait = (verdict["figures"][name]["value"] for name in ("hit_share", "ttft_p99"))
        result = "meets" if verdict["is_met"] else "misses"
        print(f"{verdict['memory'] >> 30} GiB {result} the targets:", end=" ")
        print(f"{hits:.1%} of prompt tokens from the cache, first token after {wait:.2f} s (p99)")
    print(f"cheapest: {report['cheapest'][0]['memory'] >> 30} GiB for the KV cache of one GPU")


if __name__ == "__main__":
    main()
