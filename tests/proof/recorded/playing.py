"""Replays recordings of a random server, as ``kvoxide replay`` plays them."""

import gzip
import json
from pathlib import Path

from click.testing import CliRunner
from kvoxide.cli import main


def replayed_hits(folder: Path, out: Path) -> tuple[int, ...]:
    """Return the hits of each rank in tokens."""
    command = ["replay", str(folder), "--quiet", "--json", str(out)]
    done = CliRunner().invoke(main, command)
    if "holds no request" in done.output:
        # No request ever fitted into the server's pool.
        return (0,) * len({path.name.split("-")[1] for path in folder.glob("requests-*")})
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())["results"][0]
    if result["serving"] is None or len(result["serving"]["instances"]) == 1:
        return (result["hit_tokens"],)
    return tuple(instance["hit_tokens"] for instance in result["serving"]["instances"])


def as_format_1(folder: Path, to: Path) -> Path:
    """Return the same recording with requests alone, in the format of older servers."""
    to.mkdir()
    for path in folder.iterdir():
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        header, *rest = lines
        header |= {"kvoxide_recording": 1}
        kept = [line for line in rest if "input_length" in line or "duration" in line]
        for line in kept:
            line.pop("skips_cache", None)
            line.pop("request", None)
        text = b"".join(json.dumps(line).encode() + b"\n" for line in (header, *kept))
        (to / path.name).write_bytes(gzip.compress(text))
    return to
