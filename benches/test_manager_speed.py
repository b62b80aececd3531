"""Measures the manager's calls, compared with the installed vLLM's own manager:
``python -m pytest benches/test_manager_speed.py``.

Ratios vary between machines and with other load, so these bounds are loose. The margins of
``python -m benches.gate`` are strict.
"""

import pytest
from kvoxide.lab.bench.layouts import LAYOUTS
from kvoxide.lab.bench.rows import ROWS
from kvoxide.lab.bench.traffic import Effort
from kvoxide.lab.bench.vllm_release import find_vllm
from pytest_benchmark.fixture import BenchmarkFixture

from . import baseline
from .baseline import Values
from .ratios import Measurements, measure_until, values_of

SLOWEST = 1.0
"""No call may take longer than vLLM's."""
SHARE_OF_BASELINE = 0.4
"""Rows that read much memory vary by half with the other programs on the machine."""
# Most rows are far from their bounds.
LITTLE_EFFORT = Effort(prefill_rounds=1, hit_rounds=4, decode_rounds=6, short_rounds=30)

_vllm = find_vllm()
if _vllm.version is None:
    pytest.skip(f"no vLLM to compare with: {_vllm.why_not}", allow_module_level=True)


def floor_of(layout: str, row: str) -> float:
    """Return the lowest ratio that passes."""
    ratio = baseline.read("ratios").values[layout][row]
    return max(SLOWEST, SHARE_OF_BASELINE * ratio)


def too_slow(layout: str, ratios: dict[str, float]) -> list[str]:
    return [
        f"{row}: {ratio}, at least {floor_of(layout, row):.2f}"
        for row, ratio in ratios.items()
        if ratio < floor_of(layout, row)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ratio_to_vllm(benchmark: BenchmarkFixture, layout: str) -> None:
    """Check every row, with full effort if it looks slow. Goals and ratios go to ``extra_info``."""

    def again(values: Values) -> list[str]:
        return [layout] if too_slow(layout, values[layout]) else []

    def run() -> Measurements:
        return measure_until([layout], again, retries=2, first_effort=LITTLE_EFFORT)

    found = benchmark.pedantic(run, rounds=1)
    ratios = values_of(found)[layout]
    benchmark.extra_info |= {
        row: {"ratio": ratio, "goal": ROWS[row].goals[layout]} for row, ratio in ratios.items()
    }
    assert ratios.keys() == ROWS.keys()
    assert too_slow(layout, ratios) == []
