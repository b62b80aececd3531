"""Compare dashboards with Grafana's own types:

    python -m tests.testing.grafana FILE...

Grafana's library reads a file and writes it again. A field that the types do not have is lost on
the way, and a field that they require is missing. Needs ``tests/requirements-supply.txt`` alone.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def main(paths: list[str]) -> int:
    register_default_plugins()
    errors = [f"{path}: {error}" for path in paths for error in problems(Path(path))]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


def problems(path: Path) -> Iterator[str]:
    """Yield a line for each field that Grafana would not read, or would read otherwise."""
    written = json.loads(path.read_text(encoding="utf-8"))
    try:
        read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield f"Grafana's types cannot read it: {error!r}"
        return
    yield from _differences(written, read, "")


def _differences(written: Any, read: Any, place: str) -> Iterator[str]:
    """Yield what is lost or changed. Defaults that Grafana adds are no difference."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            if name not in read:
                yield f"{place}/{name}: Grafana has no such field here"
            else:
                yield from _differences(value, read[name], f"{place}/{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for index, pair in enumerate(zip(written, read, strict=True)):
            yield from _differences(*pair, f"{place}/{index}")
    elif written != read:
        yield f"{place}: {written!r} becomes {read!r}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
