"""Tests that a replay of a server whose GPU and CPU memory decide together counts what the server
counted. tests/run.sh long recordings makes many more."""

from pathlib import Path

import pytest

from tests.proof.recorded.together import COUNTED, recordable, replayed, serve

NUM_STEPS = 150
# The last one schedules asynchronously. Not all such servers are equal to their replays.
SEEDS = (4, 6, 9, 11, 13, 17)


def test_the_servers_differ() -> None:
    servers = [recordable(seed) for seed in SEEDS]
    assert len({scenario.layout for scenario, _ in servers}) >= 5
    assert any(scenario.is_async for scenario, _ in servers)
    assert {wanted.retention for _, wanted in servers} == {"standard", "adaptive"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_counts_what_the_server_counted(seed: int, tmp_path: Path) -> None:
    counts = serve(seed, tmp_path / "recorded", NUM_STEPS)
    assert replayed(tmp_path / "recorded", tmp_path) == {name: counts[name] for name in COUNTED}
    assert counts["stored"]
