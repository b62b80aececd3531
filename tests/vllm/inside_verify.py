"""Tests of certificates in a process where vLLM loaded its plugins. A verification must not take
the code in this process for vLLM's own."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.lab.verify.reference import (  # noqa: E402
    NotVllmsOwnError,
    require_vllms_code,
    require_vllms_manager,
)
from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.environment import (  # noqa: E402
    Certificate,
    CertificateError,
    SettingsError,
    certificates,
)
from kvoxide.vllm.plugin import UnsupportedError  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core import kv_cache_manager, kv_cache_utils  # noqa: E402

from tests.testing.small_world import full, make_manager, states, traffic  # noqa: E402
from tests.testing.vllm_releases import NEWEST  # noqa: E402

Stock = kv_cache_manager.KVCacheManager
Change = Callable[[Path, dict[str, Any]], object]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVOXIDE_CERTIFICATES", str(tmp_path / "certificates"))
    return tmp_path / "certificates"


@pytest.fixture
def accepting(changed_pool: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_ACCEPT", "verified")


def certificate(**kinds: int) -> Certificate:
    return Certificate(
        identity=certificates.current_identity(),
        vllm=NEWEST,
        kvoxide="0.2.0",
        release=NEWEST,
        kinds=kinds or {"full_attention": 1_500, "sliding_window": 1_200},
        calls={"managers": 4_000, "schedulers": 300, "hashers": 21},
        seconds=60.0,
        seed=5,
        date="2026-11-25T10:00:00+00:00",
    )


def test_a_certificate_is_read_as_it_was_written(folder: Path) -> None:
    written = certificate()
    assert written.write().parent == folder
    assert certificates.find() == written


def test_a_verified_vllm_runs_natively(accepting: None, lines: list[str]) -> None:
    certificate().write()
    manager = make_manager()
    assert type(manager) is native_class()
    assert traffic(manager)
    line = lines[0]
    assert "vLLM is not a known release, but verified with 4321 calls" in line
    assert "(rules of 0.3" in line
    hasher = kv_cache_utils.get_request_block_hasher(16, sha256)
    assert hasher.__module__ == "kvoxide.vllm.plugin.hashing"


def test_a_known_release_needs_no_certificate(
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
) -> None:
    monkeypatch.setenv("KVOXIDE_ACCEPT", "verified")
    assert type(make_manager()) is native_class()
    assert "verified" not in lines[0]


def test_nobody_asked_for_certificates(
    changed_pool: None,
    lines: list[str],
) -> None:
    certificate().write()
    assert type(make_manager()) is Stock
    assert "has other code than the known releases" in lines[0]


def test_kinds_that_were_not_covered_are_vllms(
    accepting: None,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate().write()
    assert type(make_manager(full(), states(), scheduler_block_size=48)) is Stock
    said = "covers groups of full_attention, sliding_window, but not of mamba"
    assert said in lines[0]
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match=said):
        make_manager(full(), states(), scheduler_block_size=48)


def cut(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def edited(path: Path, content: dict[str, Any]) -> None:
    content["kinds"]["mamba"] = 99_999
    path.write_text(json.dumps(content))


def not_an_object(path: Path, content: dict[str, Any]) -> None:
    path.write_text("[]")


def without_checksum(path: Path, content: dict[str, Any]) -> None:
    del content["checksum"]
    path.write_text(json.dumps(content))


def a_folder(path: Path, content: dict[str, Any]) -> None:
    path.unlink()
    path.mkdir()


def of_another(**other: str) -> Change:
    def rename(path: Path, content: dict[str, Any]) -> None:
        here = certificates.find()
        there = replace(here, identity=replace(here.identity, **other)).write()
        there.rename(path)

    return rename


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (cut, "is incomplete or damaged; run `kvoxide verify` again"),
        (not_an_object, "is incomplete or damaged"),
        (without_checksum, "is incomplete or damaged"),
        (edited, "was edited, because its checksum differs; run `kvoxide verify` again"),
        (a_folder, "cannot be read"),
        (of_another(vllm_sources="x"), "is for other sources of vLLM; run `kvoxide verify` again"),
        (
            of_another(kvoxide_build="x"),
            "is for another build of kvoxide; run `kvoxide verify` again",
        ),
        (of_another(python="PyPy 3.11"), "is for PyPy 3.11, not CPython 3"),
        (lambda path, _: path.unlink(), "this vLLM has no certificate ("),
    ],
)
def test_a_certificate_that_does_not_hold_is_named(
    change: Change,
    said: str,
    accepting: None,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = certificate().write()
    change(path, json.loads(path.read_text()))
    assert type(make_manager()) is Stock
    assert len(lines) == 1
    assert "has other code than the known releases" in lines[0]
    assert f"KVOXIDE_ACCEPT=verified has no effect: {_start(said)}" in lines[0]
    assert said in lines[0]
    assert kv_cache_utils.get_request_block_hasher(16, sha256).__module__.startswith("vllm.")
    monkeypatch.setenv("KVOXIDE", "require")
    with pytest.raises(UnsupportedError, match="KVOXIDE_ACCEPT=verified has no effect"):
        make_manager()


def _start(said: str) -> str:
    return "this vLLM has no" if said.startswith("this") else "the certificate /"


def test_certificates_for_others_are_named(folder: Path) -> None:
    mine = certificate()
    replace(mine, identity=replace(mine.identity, kvoxide_build="x")).write()
    with pytest.raises(
        CertificateError, match=r"the certificates in .* are for another build of kvoxide"
    ):
        certificates.find()


def test_another_value_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_ACCEPT", "all")
    with pytest.raises(
        SettingsError, match="KVOXIDE_ACCEPT='all' is not valid; allowed: verified, or unset"
    ):
        make_manager()


def test_the_folder_is_one_of_the_users_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVOXIDE_CERTIFICATES")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert certificates.folder() == Path("/data/kvoxide/certificates")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert certificates.folder() == Path.home() / ".local/share/kvoxide/certificates"


def test_what_kvoxide_took_over_is_not_taken_for_vllms() -> None:
    with pytest.raises(NotVllmsOwnError, match=r"KVCacheManager\.__new__ is .*_dispatch"):
        require_vllms_code()
    with pytest.raises(NotVllmsOwnError, match=r"kvoxide\.vllm\.adapter\.manager\.KVCacheManager"):
        require_vllms_manager(make_manager())
