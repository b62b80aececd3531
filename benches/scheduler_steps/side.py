"""The process of one side: ``python -m benches.scheduler_steps.side LAYOUT OPTION...``.

It makes a phase for each line of input, and prints the steps as one line of JSON.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from kvoxide.lab.bench.clock import collector_paused

from benches.scheduler_steps.phases import PhaseError
from benches.scheduler_steps.server import Server
from benches.scheduler_steps.sizes import Sizes, sizes_parser
from benches.scheduler_steps.traffic import Traffic


def main() -> None:
    """Answer each line of input, until the last phase."""
    answers = _answers(Sizes.parsed(sizes_parser().parse_args()))
    for _ in sys.stdin:
        answer = next(answers, None)
        if answer is None:
            return
        print(json.dumps(answer), flush=True)


def _answers(sizes: Sizes) -> Iterator[dict[str, Any]]:
    try:
        server = Server(sizes)
        server.require_classes_of(os.environ["KVOXIDE"])
        with collector_paused():
            for name, steps in Traffic(server, sizes).phases():
                yield {"phase": name, "steps": steps}
    except PhaseError as error:
        yield {"error": str(error)}


if __name__ == "__main__":
    main()
