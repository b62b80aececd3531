"""Writes the result of ``kvoxide verify`` as a certificate, and finds it when a server starts.

A certificate is valid for one identity: the relevant sources of a vLLM, one build of kvoxide and
one Python. Its checksum shows whether it was cut or edited. It is not a signature.
"""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from kvoxide.vllm.environment.recognition import recognise
from kvoxide.vllm.environment.sources import package_folder, read_source
from kvoxide.vllm.environment.tracked_code import SCHEDULERS

FOLDER_VARIABLE: Final = "KVOXIDE_CERTIFICATES"
FORMAT: Final = 1

_DIGITS: Final = 16
_HASHED: Final = (".json", ".py", ".so")
_AGAIN: Final = "run `kvoxide verify` again"


class CertificateError(ValueError):
    """There is no certificate that holds here; says why and what to do."""


@dataclass(frozen=True)
class Identity:
    """The vLLM, kvoxide and Python for which a certificate is valid. Each text identifies one of
    them."""

    vllm_sources: str
    kvoxide_build: str
    python: str

    @property
    def key(self) -> str:
        """A short hash of all three."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class Certificate:
    """A verification without a difference.

    ``release`` is the known release whose rules kvoxide had, ``kinds`` the kinds of groups that
    were covered with the calls that met each, ``calls`` the compared calls of each part. ``date``
    is in UTC.
    """

    identity: Identity
    vllm: str
    kvoxide: str
    release: str
    kinds: dict[str, int]
    calls: dict[str, int]
    seconds: float
    seed: int
    date: str

    @property
    def num_calls(self) -> int:
        """The calls of all parts."""
        return sum(self.calls.values())

    def write(self) -> Path:
        """Write the certificate into :func:`folder`, in place of one for the same identity.

        Raises :class:`OSError` where it cannot be written.
        """
        content = {"format": FORMAT, **asdict(self)}
        path = _path_of(self.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.write_text(
            json.dumps({**content, "checksum": _checksum(content)}, indent=1) + "\n",
            encoding="utf-8",
        )
        unfinished.replace(path)
        return path


def check_writable() -> None:
    """Create a file in :func:`folder`, or in the nearest folder above it that exists, and delete it
    again.

    Raises :class:`OSError` where that fails.
    """
    here = folder()
    while not here.exists():
        here = here.parent
    with TemporaryFile(dir=here) as file:
        file.write(b"kvoxide")
        file.flush()


def folder() -> Path:
    """Returns the folder of certificates: ``KVOXIDE_CERTIFICATES``, else one of the user's data."""
    if given := os.environ.get(FOLDER_VARIABLE, "").strip():
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME", "").strip()
    base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "kvoxide" / "certificates"


def find() -> Certificate:
    """Returns the certificate for the vLLM, kvoxide and Python that are installed here.

    Raises :class:`CertificateError` if there is none that holds, and
    :class:`~kvoxide.vllm.environment.UnreadableSourcesError`.
    """
    here = current_identity()
    path = _path_of(here)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise CertificateError(_no_certificate_for(here)) from None
    except OSError as error:
        raise CertificateError(f"the certificate {path} cannot be read: {error.strerror}") from None
    certificate = _parse(text, path)
    if mismatch := _first_mismatch(certificate.identity, here):
        raise CertificateError(f"the certificate {path} is for {mismatch}; {_AGAIN}")
    return certificate


def current_identity() -> Identity:
    """Returns what a certificate would have to hold for here.

    Raises :class:`~kvoxide.vllm.environment.UnreadableSourcesError`.
    """
    python = f"{platform.python_implementation()} {platform.python_version()} {sys.platform}"
    return Identity(_vllm_sources(), _kvoxide_build(), python)


def _vllm_sources() -> str:
    """Returns a hash of the code that kvoxide re-implements, and of the schedulers around it."""
    digest = hashlib.sha256(recognise().sources_digest.encode())
    for path in SCHEDULERS:
        source = read_source(str(package_folder() / path)) or b""
        digest.update(hashlib.sha256(source).digest())
    return digest.hexdigest()


@cache
def _kvoxide_build() -> str:
    """Returns a hash of the compiled module and of the package's own files."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.suffix in _HASHED and file.is_file():
            digest.update(f"{file.relative_to(package).as_posix()}\n".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _path_of(identity: Identity) -> Path:
    return folder() / f"{identity.key}.json"


def _parse(text: bytes, path: Path) -> Certificate:
    try:
        content: dict[str, Any] = json.loads(text)
        checksum = content.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise CertificateError(
            f"the certificate {path} is incomplete or damaged; {_AGAIN}"
        ) from None
    if checksum != _checksum(content):
        raise CertificateError(
            f"the certificate {path} was edited, because its checksum differs; {_AGAIN}"
        )
    if content.pop("format", None) != FORMAT or content.keys() != _NAMES:
        raise CertificateError(f"the certificate {path} has another format; {_AGAIN}")
    return Certificate(**{**content, "identity": Identity(**content["identity"])})


_NAMES: Final = {field.name for field in fields(Certificate)}


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _first_mismatch(identity: Identity, here: Identity) -> str | None:
    """Returns what another certificate is for; None if it is for the same."""
    if identity.vllm_sources != here.vllm_sources:
        return "other sources of vLLM"
    if identity.kvoxide_build != here.kvoxide_build:
        return "another build of kvoxide"
    return f"{identity.python}, not {here.python}" if identity.python != here.python else None


def _no_certificate_for(here: Identity) -> str:
    others = sorted(
        {mismatch for other in _other_certificates() if (mismatch := _first_mismatch(other, here))}
    )
    found = (
        f"the certificates in {folder()} are for {', '.join(others)}"
        if others
        else f"{folder()} has none"
    )
    return f"this vLLM has no certificate ({found}); run `kvoxide verify`"


def _other_certificates() -> Iterator[Identity]:
    for path in folder().glob("*.json"):
        try:
            yield _parse(path.read_bytes(), path).identity
        except (CertificateError, OSError):
            continue
