"""Code that the tests of recordings share: vLLM with the plugin, and the lines of its files."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

# vLLM sets variables with which this process would get a server of its own.
BEFORE_VLLM = dict(os.environ)

from vllm.plugins import load_general_plugins  # noqa: E402

os.environ.setdefault("KVOXIDE_RECORD", "/unused/by/import")
load_general_plugins()

from click.testing import CliRunner  # noqa: E402
from kvoxide.cli import main  # noqa: E402
from kvoxide.recording_format import FORMAT  # noqa: E402
from kvoxide.vllm.recording import hooks  # noqa: E402
from kvoxide.vllm.recording import recorder as recorder_module  # noqa: E402

from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

__all__ = [
    "SchedulerWorld",
    "all_lines",
    "closed",
    "environment_of_child",
    "hit_tokens",
    "hooks",
    "ids",
    "lines",
    "plain",
    "prompt",
    "recorder_module",
]


def environment_of_child() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name.startswith("KVOXIDE")}
    return BEFORE_VLLM | ours


def plain(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def lines(folder: Path, kind: str = "requests") -> list[dict[str, Any]]:
    """Return the lines of requests or of steps, in the order of their files."""
    wanted = "input_length" if kind == "requests" else "duration"
    return [line for line in all_lines(folder, kind) if wanted in line]


def all_lines(folder: Path, kind: str = "requests") -> list[dict[str, Any]]:
    """Return all lines without headers, in the order of their files."""
    found = []
    for path in sorted(folder.glob(f"{kind}-*.jsonl.gz")):
        header, *rest = [json.loads(line) for line in plain(path).splitlines()]
        assert header["kvoxide_recording"] == FORMAT
        found += rest
    return found


def closed(world: SchedulerWorld) -> None:
    world.scheduler.shutdown()
    assert not world.scheduler._kvoxide_recorder.is_on


def prompt(number: int, length: int) -> list[int]:
    return list(range(number * 10_000, number * 10_000 + length))


def ids(line: dict[str, Any]) -> list[int]:
    return list(line["hash_ids"] + line["output_hash_ids"])


def hit_tokens(folder: Path, *options: str) -> int:
    """Return the hits of a replay in the pool that the server had."""
    out = folder.parent / "replayed.json"
    command = ["replay", str(folder), "--quiet", "--json", str(out), *options]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    return int(json.loads(out.read_text())["results"][0]["hit_tokens"])
