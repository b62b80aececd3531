"""``python -m tests.engine.scraped_pages``: writes the pages that ``tests/package/deploy`` reads.

Each page comes from a server of vLLM with a small model on the CPU. Clients chat with it until its
pool evicts blocks.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.testing import queries
from tests.testing.paths import TESTS
from tests.testing.vllm_releases import EVERY_RELEASE, NEWEST

from .jobs import Job, offloaded
from .load import Chats, chat
from .models import MAX_POSITIONS, write_slow_llama
from .server import Server, serving

PAGES: Final = TESTS / "package/deploy/pages"
MODEL: Final = "slow-llama"
CHATS: Final = Chats(
    seed=1, num=30, per_second=5.0, turns=6, pause=1.0, system=200, message=250, answer=40
)
OPTIONS: Final[dict[str, Any]] = {
    "data_parallel_size": 1,
    "max_model_len": MAX_POSITIONS,
    "max_num_seqs": 8,
    # Neither the pool nor the CPU memory holds all chats.
    "num_gpu_blocks_override": 210,
    "kv_transfer_config": json.dumps(
        offloaded(Job(MODEL), megabytes=2).options["kv_transfer_config"]
    ),
}


@dataclass(frozen=True)
class Run:
    """A server: its mode, and its other variables."""

    mode: str
    variables: dict[str, str] = field(default_factory=dict)


RUNS: Final = {
    "adaptive": Run("auto", {"KVOXIDE_POLICY": "adaptive"}),
    "shadow": Run("shadow"),
    "off": Run("off"),
}

_NAME: Final = re.compile(r"^(?:# (?:HELP|TYPE) )?([\w:]+)")
_ENDING: Final = re.compile(r"_(?:bucket|sum|count|total|created)$")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.engine.scraped_pages", description=__doc__)
    parser.add_argument("--into", type=Path, default=PAGES, metavar="FOLDER", help="instead")
    parser.add_argument("--release", choices=EVERY_RELEASE, default=NEWEST, help="of vLLM")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_slow_llama(Path(folder) / MODEL)
        for name, run in RUNS.items():
            page = scraped(run, arguments.release, Path(folder))
            (arguments.into / f"{name}.txt").write_text(page, encoding="utf-8")
            print(f"{name}: {len(page)} bytes")
    return 0


def scraped(run: Run, release: str, folder: Path) -> str:
    """Start a server, chat with it, and return its page."""
    log = folder / f"{run.mode}.log"
    with ExitStack() as stack:
        server: Server = stack.enter_context(
            serving(MODEL, run.mode, release, folder, log, OPTIONS, run.variables)
        )
        server.wait_until_it_serves()
        chat(server.url, MODEL, CHATS)
        return "".join(f"{line}\n" for line in shortened(server.get("/metrics")))


def shortened(page: str) -> Iterator[str]:
    """Yield the lines of kvoxide's metrics, and of vLLM's metrics that a query names."""
    expressions = (*queries.of_dashboard(), *queries.of_runbook(), *queries.of_alerts())
    named = re.findall(r"vllm:\w+", " ".join(each.expression for each in expressions))
    families = {_ENDING.sub("", name) for name in named}
    for line in page.splitlines():
        match = _NAME.match(line)
        if match is None or match[1].endswith("_created"):
            continue
        if match[1].startswith("kvoxide_") or _ENDING.sub("", match[1]) in families:
            yield line


if __name__ == "__main__":
    sys.exit(main())
