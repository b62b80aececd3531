"""``python -m tests.proof.conformance``: runs the tests of the installed vLLM twice."""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

from kvoxide.vllm.environment.releases import installed_version

from .constructions import managers_by_test, summary
from .models import write_models
from .sources import sources_of

SUITES: Final = ("tests/v1/core", "tests/v1/simple_kv_offload")
PLUGINS: Final = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.conformance", description=__doc__)
    parser.add_argument(
        "sources", type=Path, nargs="?", help="vLLM's sources; default: those of the release"
    )
    given = parser.parse_args().sources
    sources = given.resolve() if given else sources_of(installed_version() or "")
    write_models(sources)
    with tempfile.TemporaryDirectory() as folder:
        stock, ours = (Path(folder, name) for name in ("off.xml", "auto.xml"))
        run("off", sources, stock)
        run("auto", sources, ours)
        wanted, reached = passed(stock), passed(ours)
        print(f"vLLM {installed_version()}: {len(wanted & reached)} of the {len(wanted)} tests")
        print("that pass on vLLM's manager pass with kvoxide")
        print(summary(managers_by_test(ours)))
    for test in sorted(wanted - reached):
        print(f"FAILED {test}")
    return 0 if wanted and wanted <= reached else 1


def run(mode: str, sources: Path, junit: Path) -> None:
    """Run all suites with ``KVOXIDE=mode``. The result of each test is in ``junit``."""
    given = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, (str(PLUGINS), given)))
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "constructions",
                "-p",
                "offline",
                "--numprocesses",
                "2",
                "-p",
                "no:cacheprovider",
            ),
            *("--junitxml", str(junit), *SUITES),
        ],
        cwd=sources,
        env={**os.environ, "KVOXIDE": mode, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        check=False,
    )


def passed(junit: Path) -> set[str]:
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in ElementTree.parse(junit).iter("testcase")
        if not any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))
    }


if __name__ == "__main__":
    sys.exit(main())
