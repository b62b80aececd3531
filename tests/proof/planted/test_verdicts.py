"""Tests the report of a verification that cannot judge."""

import json
from pathlib import Path
from typing import Any

import pytest

from ..sameness import vllm_required  # isort: skip

from kvoxide.lab.verify import __main__ as process
from kvoxide.lab.verify.suite import HarnessError
from kvoxide.lab.verify.verification import Verification
from vllm.v1.core.kv_cache_manager import KVCacheManager


@pytest.fixture(autouse=True)
def prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "_prepare", lambda: None)
    monkeypatch.setenv("KVOXIDE_CERTIFICATES", str(tmp_path / "certificates"))


def verdict(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert process.main(list(arguments)) == 3, vllm_required.RELEASE
    return capsys.readouterr().err


def test_a_signature_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def allocate_slots(self: Any, request: Any, num_new_tokens: int) -> None:
        raise AssertionError

    monkeypatch.setattr(KVCacheManager, "allocate_slots", allocate_slots)
    with pytest.raises(HarnessError, match="got an unexpected keyword argument"):
        Verification(1).run(5)
    said = verdict(capsys, "--seconds", "5", "--seed", "1")
    assert "Not verified: the test traffic does not work with this vLLM: TypeError" in said


def test_a_name_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(KVCacheManager, "get_computed_blocks_for_connector")
    with pytest.raises(HarnessError, match="get_computed_blocks_for_connector"):
        Verification(1).run(20)


def test_an_error_of_the_harness(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(*_: Any) -> None:
        raise ZeroDivisionError("of the harness")

    monkeypatch.setattr(Verification, "run", run)
    said = verdict(capsys)
    assert "does not work with this vLLM (ZeroDivisionError: of the harness)" in said
    assert not (tmp_path / "certificates").exists()


def test_too_little_time(capsys: pytest.CaptureFixture[str]) -> None:
    said = verdict(capsys, "--seconds", "0.01", "--seed", "1")
    assert (
        "Not verified: too few calls of schedulers, hashers in 0.01 s; increase --seconds" in said
    )


def test_a_folder_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVOXIDE_CERTIFICATES", str(tmp_path / "file" / "folder"))
    said = verdict(capsys, "--seconds", "3", "--seed", "1")
    assert "the certificate cannot be written to " in said
    assert "file/folder: Not a directory; set KVOXIDE_CERTIFICATES to a writable" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"part": "kernels"}',
        '{"part": "hashers"}',
        '{"part": "schedulers", "seed": "x", "family": "states", "step": 3}',
        '{"scenario": {}, "operations": []}',
        json.dumps({"scenario": {"groups": [{"kind": "x"}]}, "operations": [{}]}),
    ],
)
def test_a_file_that_is_no_difference(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    assert f"Not verified: {path} is not a file that `kvoxide verify` wrote" in verdict(
        capsys, "--replay", str(path)
    )


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = verdict(capsys, "--replay", str(tmp_path / "missing.json"))
    assert "missing.json cannot be read: No such file" in said
