"""Remove the build machine's folder from the SBOMs that maturin put into a wheel.

``python -m tests.wheel.sbom UNPACKED_WHEEL SOURCE_FOLDER`` rewrites them in place.
"""

import json
import sys
from pathlib import Path
from typing import Final

PLACE: Final = "file:///kvoxide"
"""What SBOMs name in place of the folder that the wheel was built in."""


def without_folder(value: object, folder: Path) -> object:
    """Return a JSON value in which no address begins with ``folder``."""
    match value:
        case str():
            return value.replace(folder.as_uri(), PLACE)
        case list():
            return [without_folder(each, folder) for each in value]
        case dict():
            return {key: without_folder(each, folder) for key, each in value.items()}
    return value


def main(wheel: Path, folder: Path) -> None:
    """Rewrite the SBOMs of an unpacked wheel. A wheel without one is an error."""
    paths = sorted(wheel.glob("*.dist-info/sboms/*.json"))
    if not paths:
        raise SystemExit(f"tests.wheel.sbom: {wheel} has no SBOM in its .dist-info/sboms")
    for path in paths:
        bill = without_folder(json.loads(path.read_bytes()), folder.resolve())
        path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
