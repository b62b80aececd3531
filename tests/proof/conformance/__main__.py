"""``python -m tests.proof.conformance FOLDER``: runs the tests of the installed vLLM twice."""

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

SUITES: Final = ("tests/v1/core", "tests/v1/simple_kv_offload")
PLUGINS: Final = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.conformance", description=__doc__)
    parser.add_argument("sources", type=Path, help="vLLM's sources, of the installed release")
    sources = parser.parse_args().sources.resolve()
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
