"""The README's example runs as it stands."""

import re
from typing import Any

from tests.testing.paths import ROOT

README = ROOT / "README.md"


def test_library_example() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["num_hit"] == 0
    assert len(names["full_ids"]) == len(names["window_ids"]) == 313
    assert names["manager"].usage == 0.0
