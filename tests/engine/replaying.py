"""What a server recorded, replayed."""

import json
from pathlib import Path
from typing import Any

from tests.testing.traces import succeed


def replayed(folder: Path, out: Path, *options: str) -> dict[str, Any]:
    """The first result of a replay of the folder, written to ``out``."""
    succeed("replay", folder, "--quiet", "--json", out, *options)
    result: dict[str, Any] = json.loads(out.read_text())["results"][0]
    return result
