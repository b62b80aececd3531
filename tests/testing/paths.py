"""Places in this checkout."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
TESTS: Final = ROOT / "tests"
