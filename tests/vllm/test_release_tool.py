"""``python -m tests.release``: the changes that it finds between two releases, and their text."""

from pathlib import Path

import pytest
from kvoxide.vllm.environment import fingerprints
from kvoxide.vllm.environment.definitions import MODULE_LEVEL
from kvoxide.vllm.environment.tracked_code import ALL_CODE

from tests.release.changes import (
    AREAS,
    calls_of_schedulers,
    changes_between,
    files_that_differ,
)
from tests.release.left import is_supported, left_to_do
from tests.release.sources import source_of
from tests.testing.vllm_environments import package_of
from tests.testing.vllm_releases import EVERY_RELEASE, INSTALLED, NEWEST

POOL = "v1/core/block_pool.py"


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_each_part_has_its_lines(release: str) -> None:
    package = package_of(release)
    for path, code in fingerprints.load(release).items():
        if path in ALL_CODE and code.parts:
            text = (package / path).read_text(encoding="utf-8")
            keys = [key for key in code.parts if key != MODULE_LEVEL]
            assert [key for key in keys if not source_of(text, key)] == [], path


def test_all_tracked_code_is_in_an_area() -> None:
    assert {path for area in AREAS.values() for path in area} == set(ALL_CODE)


def test_a_release_has_no_changes_against_itself() -> None:
    package = package_of(NEWEST)
    assert changes_between(package, package) == []
    assert files_that_differ(package, package) == []


def test_a_changed_line_is_in_the_diff(tmp_path: Path) -> None:
    old = package_of(NEWEST)
    for path in ALL_CODE:
        if (old / path).is_file():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            text = (old / path).read_text(encoding="utf-8")
            changed = text.replace("block.ref_cnt += 1", "block.ref_cnt += 2")
            (tmp_path / path).write_text(changed if path == POOL else text, encoding="utf-8")
    changes = changes_between(old, tmp_path)
    names = ("BlockPool.get_new_blocks", "BlockPool.touch")
    assert [change.title for change in changes] == [
        f"{POOL}: def {name} has changed" for name in names
    ]
    assert "+            block.ref_cnt += 2" in changes[1].diff().splitlines()


def test_new_and_missing_methods_are_named() -> None:
    changes = changes_between(package_of(INSTALLED), package_of(NEWEST))
    titles = {change.title for change in changes}
    utils = "v1/core/kv_cache_utils.py"
    assert f"{utils}: def trim_null_head is new" in titles
    back = changes_between(package_of(NEWEST), package_of(INSTALLED))
    assert f"{utils}: def trim_null_head is gone" in {change.title for change in back}
    assert len(back) == len(changes)
    assert {change.area for change in changes} == {"manager", "host tier", "offloading connector"}


def test_calls_of_the_schedulers_are_found() -> None:
    assert {"allocate_slots", "free", "get_computed_blocks"} <= calls_of_schedulers(
        package_of(NEWEST)
    )


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_nothing_is_left_for_a_supported_release(release: str) -> None:
    assert is_supported(release)
    assert list(left_to_do(release, [], {})) == []


def test_everything_is_left_for_an_unknown_release() -> None:
    left = " ".join(left_to_do("9.9.9", [], {"engine": None}))
    for what in ("--only record", "--only engine", "releases.py", "vllm_releases.env", "README.md"):
        assert what in left
