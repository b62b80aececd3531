"""Result files: written whole or not at all."""

import os
from pathlib import Path

import pytest
from kvoxide.lab.output.files import OutputError, check_distinct, check_writable, replacing


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "result"
    with replacing(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["result"]


def test_an_error_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(path) as stream:
            stream.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result"]


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as stream:
        stream.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_in_place() -> None:
    path = Path("/dev/null")
    check_writable(path)
    with replacing(path) as stream:
        stream.write(b"gone")
    assert path.is_char_device()


@pytest.mark.parametrize("name", ["", "missing/result", "file/result", "x" * 300])
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / name
    with pytest.raises(OutputError, match=r"cannot write '"):
        check_writable(path)
    with pytest.raises(OutputError, match=r"cannot write '"), replacing(path):
        pass


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "result")
    assert not os.listdir(tmp_path)


def test_one_file_for_two_purposes_is_refused(tmp_path: Path) -> None:
    trace, other = tmp_path / "trace", tmp_path / "other"
    trace.touch()
    check_distinct(str(trace), [other, None, None])
    with pytest.raises(OutputError, match="trace"):
        check_distinct(str(trace), [tmp_path / "." / "trace"])
    with pytest.raises(OutputError, match="other"):
        check_distinct("-", [other, None, other])
