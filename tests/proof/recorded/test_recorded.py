"""Tests that a replay of a recording hits what the server counted, rank by rank."""

from pathlib import Path

import pytest

from ..sameness import vllm_required
from .playing import as_format_1, replayed_hits
from .server import serve

# Together they have every policy, priorities, several ranks, windows, drafts, preemptions, aborts,
# skips, and resets of idle and of running servers.
SEEDS = (1, 3, 4, 5, 9, 13, 14, 65)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_hits_what_the_server_counted(seed: int, tmp_path: Path) -> None:
    counted = serve(seed, tmp_path / "recorded", num_steps=120)
    hits = replayed_hits(tmp_path / "recorded", tmp_path / "json")
    assert hits == counted.hits, (vllm_required.RELEASE, counted.text)
    assert sum(hits) > 0


def test_the_servers_reset_their_cache_and_skip_reading_it(tmp_path: Path) -> None:
    """Without the additions of format 2, the replay of such a server hits more."""
    counted = serve(13, tmp_path / "recorded", num_steps=120)
    assert counted.seen["reset"] > 0
    assert counted.seen["skips"] > 0
    assert counted.seen["abort"] > 0
    assert counted.seen["preempted"] > 0
    old = as_format_1(tmp_path / "recorded", tmp_path / "old")
    assert sum(replayed_hits(old, tmp_path / "json")) > sum(counted.hits)
