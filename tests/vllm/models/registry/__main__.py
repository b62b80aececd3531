"""Compare kvoxide's plans of the recorded folders with vLLM's answers:

python -m tests.vllm.models.registry [FILE] [--show RESULT]    the recorded ones, or those in FILE

Prints how many folders have which result, then each folder with the result ``different``, and those
with the results that ``--show`` names.
"""

import argparse
import sys
from pathlib import Path

from .comparing import DIFFERENT, RESULTS, compare, describe, table
from .recorded import FILE, read


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--show", choices=RESULTS, action="append", default=[DIFFERENT])
    options = parser.parse_args()
    found = list(compare(read(options.file)))
    for by in ("variant", "table"):
        print("\n".join(table(by, found)), end="\n\n")
    for result in dict.fromkeys(options.show):
        print(f"{result}:\n")
        print("\n".join(describe(result, found)), end="\n\n")
    return any(each.result == DIFFERENT for each in found)


if __name__ == "__main__":
    sys.exit(main())
