"""``python -m kvoxide.vllm.environment --print``: the surface of the vLLM that is installed, in the
form of the files in ``signatures``.
"""

import argparse
import sys

from kvoxide.vllm.environment.surface import format_surface, installed_surface


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kvoxide.vllm.environment", description=__doc__)
    parser.add_argument("--print", action="store_true", required=True, dest="print_surface")
    parser.parse_args()
    sys.stdout.write(format_surface(installed_surface()))


if __name__ == "__main__":
    _main()
