"""Measures the memory that a request leaves, first unchanged, then with the blocks of every request
kept.

``python -m tests.proof.soak.inside_planted`` prints JSON: bytes per request for each of the two,
and the reasons why the first one fails.
"""

import json
from typing import Any
from unittest.mock import patch

from .manager_soak import UNWANTED, serve
from .scheduler import WANTED, Scheduler

REQUESTS = 40_000


def main() -> None:
    clean = serve(REQUESTS, REQUESTS // 2, seed=1)
    kept: list[Any] = []
    end = Scheduler.end

    def keep_and_end(scheduler: Scheduler, request: Any, how: str) -> None:
        kept.append(scheduler.manager.get_blocks(request.request_id))
        end(scheduler, request, how)

    with patch.object(Scheduler, "end", keep_and_end):
        leaking = serve(REQUESTS, REQUESTS // 2, seed=1)
    found = {
        "clean": clean.bytes_per_request(),
        "leaking": leaking.bytes_per_request(),
        "failures": clean.failures(WANTED, UNWANTED),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
