"""Tests that a replay of a server whose GPU and CPU memory decide together counts what the server
counted. tests/run.sh long recordings makes many more."""

from pathlib import Path

import pytest

from tests.proof.recorded.together import COUNTED, recordable, replayed, serve

NUM_STEPS = 150
# Full attention, windows, states; three of them with asynchronous scheduling.
SEEDS = (4, 6, 11, 12, 13, 17, 18)


def test_the_servers_differ() -> None:
    servers = [recordable(seed) for seed in SEEDS]
    assert len({scenario.layout for scenario, _ in servers}) >= 6
    assert any(scenario.is_async for scenario, _ in servers)
    assert {wanted.retention for _, wanted in servers} == {"standard", "adaptive"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_counts_what_the_server_counted(seed: int, tmp_path: Path) -> None:
    counts = serve(seed, tmp_path / "recorded", NUM_STEPS)
    assert replayed(tmp_path / "recorded", tmp_path) == {name: counts[name] for name in COUNTED}
    assert counts["stored"]
