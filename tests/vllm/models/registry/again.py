"""Ask vLLM once more about some recorded folders, and print what it answers:

python -m tests.vllm.models.registry.again CLASS,VARIANT...

The first line has the names of the classes in vLLM's registry, each other line an answer.
"""

import json
import sys

from . import forked, recorded
from .classes import registered


def main() -> None:
    forked.prepare()
    rows = {recorded.key(row): row for row in recorded.read()}
    print(json.dumps(registered()), flush=True)
    for argument in sys.argv[1:]:
        name, variant = argument.split(",")
        forked.import_class(name)
        print(json.dumps(forked.answer(rows[name, variant, 0]["files"])), flush=True)


if __name__ == "__main__":
    main()
