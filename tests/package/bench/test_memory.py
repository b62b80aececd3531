"""``python -m benches.memory``, on prompts of a few thousand tokens."""

import importlib.util
import sys

import pytest

from benches import memory

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
)


def test_every_row_is_measured_with_and_without_caches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["memory", "--layout", "full", "dsv4", "--tokens", "20000"])
    memory.main()
    lines = [line.rsplit(maxsplit=2) for line in capsys.readouterr().out.splitlines()[1:]]
    expected = [
        (layout, row) for layout in ("full", "dsv4") for row in (*memory.ROWS, memory.HASHES)
    ]
    assert [tuple(label.split(maxsplit=1)) for label, _, _ in lines] == expected
    assert all(float(left) > 0 and float(overwritten) > 0 for _, left, overwritten in lines)
