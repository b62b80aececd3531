"""The process of one side: ``python -m benches.scheduler_steps.side LAYOUT OPTION...``.

It prints a line when its scheduler is constructed. Then it makes a phase for each line of input,
and prints the steps as one line of JSON.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from kvoxide.lab.bench.clock import collector_paused

from benches.scheduler_steps.phases import READY, PhaseError
from benches.scheduler_steps.server import Server
from benches.scheduler_steps.sizes import Sizes, sizes_parser
from benches.scheduler_steps.traffic import Traffic


def main() -> None:
    """Answer once without input, and then each line of input until the last phase."""
    answers = answers_for(Sizes.parsed(sizes_parser().parse_args()))
    for answer in answers:
        print(json.dumps(answer), flush=True)
        if not sys.stdin.readline():
            return


def answers_for(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield :data:`~.phases.READY`, then each phase and its steps. If a phase does not happen,
    yield the error and end."""
    try:
        server = Server(sizes)
        server.require_classes_of(os.environ["KVOXIDE"])
        yield READY
        with collector_paused():
            for name, steps in Traffic(server, sizes).phases():
                yield {"phase": name, "steps": steps}
    except PhaseError as error:
        yield {"error": str(error)}


if __name__ == "__main__":
    main()
