"""``python -m kvoxide.vllm.environment --print``: the code of the vLLM that is installed, in the
form of the files in ``fingerprints``.
"""

import argparse
import sys

from kvoxide.vllm.environment import fingerprints
from kvoxide.vllm.environment.recognition import installed_code
from kvoxide.vllm.environment.sources import UnreadableSourcesError
from kvoxide.vllm.environment.tracked_code import ALL_CODE


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kvoxide.vllm.environment", description=__doc__)
    parser.add_argument("--print", action="store_true", required=True, dest="print_code")
    parser.parse_args()
    try:
        sys.stdout.write(fingerprints.dump(installed_code(ALL_CODE).files()))
    except UnreadableSourcesError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()
