"""Lists the steps that are left until kvoxide supports a release."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from kvoxide.vllm.environment import fingerprints
from kvoxide.vllm.environment.releases import RELEASES

from tests.testing.paths import DOCS, ROOT
from tests.testing.vllm_releases import FILE, NAMED

from .changes import Change
from .checks import Outcome

ENVIRONMENT = ROOT / "python/kvoxide/vllm/environment"
FINGERPRINTS = Path(fingerprints.__file__).parent
PAGES = (
    ROOT / "README.md",
    DOCS / "reference/compatibility.md",
    DOCS / "explain/sameness.md",
    ROOT / "CHANGELOG.md",
)


def is_supported(version: str) -> bool:
    """Return whether kvoxide has the rules and the fingerprints of a release."""
    return version in RELEASES and _fingerprints(version).is_file()


def left_to_do(
    version: str, changes: list[Change] | None, outcomes: Mapping[str, Outcome | None]
) -> Iterator[str]:
    """Yield what is left to do, in the order in which it is best done. ``outcomes`` has None for a
    check that could not run."""
    if changes and version not in RELEASES:
        yield (
            f"Read the {len(changes)} changes above. Where a decision differs, add a rule: a field "
            f"of Release in {_short(ENVIRONMENT / 'releases.py')}, or a name of older_rules, which "
            "rust/core/src/retention/older_rules.rs declares"
        )
    for name, outcome in outcomes.items():
        if outcome is not None and not outcome.passed:
            yield f"Make the check '{name}' pass: {outcome.last_line} ({outcome.log})"
    if not _fingerprints(version).is_file():
        yield f"Write the fingerprints: python -m tests.release {version} --only record"
    if version not in RELEASES:
        yield f"Add Release(version={version!r}, ...) to {_short(ENVIRONMENT / 'releases.py')}"
    skipped = [name for name, outcome in outcomes.items() if outcome is None]
    if skipped:
        yield (
            "Run the checks that need a supported release: python -m tests.release "
            f"{version} --only {' '.join(skipped)}"
        )
    if version not in NAMED:
        yield f"Name the release in {_short(FILE)}: OLDER, or NEWEST or INSTALLED for a new one"
    for page in PAGES:
        if version not in page.read_text(encoding="utf-8"):
            yield f"Name the release in {_short(page)}"


def _fingerprints(version: str) -> Path:
    return FINGERPRINTS / f"vllm-{version}.json"


def _short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
