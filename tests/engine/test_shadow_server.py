"""Tests of the last line of a server in shadow mode: how many calls it compared. vLLM may kill the
engines before they can log."""

import re
from pathlib import Path

import pytest

from tests.testing.vllm_releases import INSTALLED, NEWEST

from .test_metrics_page import started, total, wait_for

CALLS = "kvoxide_shadow_calls_total"
LAST_LINE = re.compile(
    r"shadow mode ends with the server\. It compared (?:at least )?(\d+) calls of ([a-zA-Z ]+): no "
)


def check_last_line(
    release: str, models: Path, folder: Path, *, num_ranks: int, num_api_servers: int
) -> None:
    with started(
        release,
        models,
        folder,
        "shadow",
        num_ranks=num_ranks,
        num_api_servers=num_api_servers,
        offloads=True,
    ) as (server, client):
        for rank in range(num_ranks):
            client.ask(rank, [7] * 100, max_tokens=5)
        # The metrics have a value as soon as no request is left.
        found = wait_for(server, CALLS, at_least=10 * num_ranks, part="manager")
        assert server.stop() == 0
        lines = LAST_LINE.findall(server.running.log.read_text())
    for part, name in (
        ("manager", "the KV cache"),
        ("host", "the offloading connector and the CPU offload cache"),
    ):
        compared = [int(number) for number, line_name in lines if line_name == name]
        assert compared, name
        # The engines' own lines are further ones, if vLLM gives them the time.
        assert max(compared) >= total(found, CALLS, part=part) / num_ranks


def test_a_server_logs_at_its_end_that_both_agree(models: Path, tmp_path: Path) -> None:
    check_last_line(NEWEST, models, tmp_path, num_ranks=1, num_api_servers=1)


@pytest.mark.long
@pytest.mark.parametrize("release", [NEWEST, INSTALLED])
@pytest.mark.parametrize(("num_ranks", "num_api_servers"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_ranks_and_api_servers_log_at_their_end(
    num_ranks: int, num_api_servers: int, release: str, models: Path, tmp_path: Path
) -> None:
    check_last_line(release, models, tmp_path, num_ranks=num_ranks, num_api_servers=num_api_servers)
