"""Small traces and the command, for the tests of ``kvoxide replay``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from kvoxide.cli import main

COMMAND = "from kvoxide.cli import main; main(prog_name='kvoxide')"


def line(prompt: Sequence[int], output_length: int = 1) -> bytes:
    record = {"prompt_token_ids": list(prompt), "output_length": output_length}
    return json.dumps(record).encode() + b"\n"


def mooncake_line(hash_ids: Sequence[int], input_length: int, output_length: int = 1) -> bytes:
    record = {
        "timestamp": 0,
        "input_length": input_length,
        "output_length": output_length,
        "hash_ids": list(hash_ids),
    }
    return json.dumps(record).encode() + b"\n"


def prompt(number: int, length: int = 1000) -> range:
    """Return a prompt that shares no token with another number's."""
    return range(number * 100_000, number * 100_000 + length)


def write_trace(path: Path, *lines: bytes) -> str:
    path.write_bytes(b"".join(lines))
    return str(path)


def kvoxide(*arguments: str | Path, standard_input: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], input=standard_input)


def succeed(*arguments: str | Path, standard_input: bytes | None = None) -> Result:
    result = kvoxide(*arguments, standard_input=standard_input)
    assert result.exit_code == 0, result.output
    return result


def replay_json(tmp_path: Path, *arguments: str | Path) -> dict[str, Any]:
    """Return the JSON that ``kvoxide replay`` writes to ``--json``."""
    path = tmp_path / "replay.json"
    succeed("replay", *arguments, "--json", path)
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record
