"""Finds the release whose code the installed vLLM has, whatever its version says.

Only files whose bytes are not a release's are parsed.
"""

import builtins
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from kvoxide.vllm.environment import fingerprints
from kvoxide.vllm.environment.definitions import MODULE_LEVEL, Parts, parts_of
from kvoxide.vllm.environment.fingerprints import FileCode
from kvoxide.vllm.environment.releases import RELEASES, Release
from kvoxide.vllm.environment.sources import (
    UnreadableSourcesError,
    origin_of,
    package_folder,
    read_source,
)
from kvoxide.vllm.environment.tracked_code import (
    ALL_CODE,
    CONNECTOR_CODE,
    HOST_CODE,
    MANAGER_CODE,
    PRIMARY_TIER_CODE,
    SCHEDULERS,
)


@dataclass(frozen=True)
class Recognition:
    """The release whose rules are used for the installed vLLM.

    ``release`` is the release whose code it has, or else the nearest one, which has the fewest
    ``differences``: one line for each part of vLLM's code that differs. ``sources_digest`` is a
    SHA-256 over the relevant code of this vLLM. Comments and layout do not change it.
    """

    release: Release
    is_known: bool
    differences: tuple[str, ...]
    sources_digest: str


def recognise() -> Recognition:
    """Returns which release's code the installed vLLM has; imports nothing of vLLM.

    Raises :class:`UnreadableSourcesError` where there is no vLLM, or none with readable sources.
    """
    return installed_code().recognition


def recognise_host() -> Recognition:
    """Returns which release's host tier the installed vLLM has, as :func:`recognise` does."""
    return installed_code(HOST_CODE).recognition


def recognise_primary_tier() -> Recognition:
    """Returns which release's primary tier the installed vLLM has."""
    return installed_code(PRIMARY_TIER_CODE).recognition


def recognise_connector() -> Recognition:
    """Returns which release's offloading connector the installed vLLM has."""
    return installed_code(CONNECTOR_CODE).recognition


def installed_code(paths: Iterable[str] = MANAGER_CODE) -> "InstalledCode":
    """Returns the relevant code of the installed vLLM in these files, read again only if modules
    were imported from elsewhere since. Raises :class:`UnreadableSourcesError`."""
    folder = package_folder()
    return _code_at(tuple((path, origin_of(path, folder)) for path in paths))


@lru_cache(maxsize=4)
def _code_at(origins: tuple[tuple[str, str], ...]) -> "InstalledCode":
    return InstalledCode(dict(origins))


class InstalledCode:
    """The relevant code of one vLLM."""

    def __init__(self, origins: dict[str, str], releases: Mapping[str, Release] = RELEASES) -> None:
        """Read the files of vLLM (path below the package -> where it is), and find the nearest of
        these releases.

        Raises :class:`UnreadableSourcesError`.
        """
        self.origins: Final = origins
        self._releases = releases
        self._sources = {path: read_source(origin) for path, origin in origins.items()}
        self._digests = {
            path: "" if source is None else hashlib.sha256(source).hexdigest()
            for path, source in self._sources.items()
        }
        self._parsed: dict[str, Parts] = {}
        self.recognition: Final = self._recognise()

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """The parts of each file."""
        known = fingerprints.load(self.recognition.release.version)
        return self._parts(known)

    def files(self) -> dict[str, FileCode]:
        """Returns the code of every file, parsed, for
        :func:`kvoxide.vllm.environment.fingerprints.dump`. Files of schedulers have no parts."""
        files = {path: FileCode(self._digests[path], self._parse(path)) for path in self.origins}
        for path in SCHEDULERS:
            if (source := read_source(str(package_folder() / path))) is not None:
                files[path] = FileCode(hashlib.sha256(source).hexdigest(), {})
        return files

    def _recognise(self) -> Recognition:
        nearest: Recognition | None = None
        for release, known in self._nearest_first():
            parts = self._parts(known)
            differences = tuple(_differences(known, parts))
            if nearest is None or len(differences) < len(nearest.differences):
                nearest = Recognition(release, not differences, differences, _digest(parts))
            if not differences:
                break
        assert nearest is not None
        return nearest

    def _nearest_first(self) -> list[tuple[Release, dict[str, FileCode]]]:
        """Returns the known releases, those first that have more files in common with this one."""
        releases = [
            (release, fingerprints.load(release.version)) for release in self._releases.values()
        ]
        return sorted(releases, key=lambda pair: len(self._others(pair[1])))

    def _others(self, known: dict[str, FileCode]) -> list[str]:
        return [
            path
            for path, digest in self._digests.items()
            if path not in known or known[path].sha256 != digest
        ]

    def _parts(self, known: dict[str, FileCode]) -> dict[str, Parts]:
        others = self._others(known)
        return {
            path: self._parse(path) if path in others else known[path].parts
            for path in self.origins
        }

    def _parse(self, path: str) -> Parts:
        if path not in self._parsed:
            source = self._sources[path]
            try:
                self._parsed[path] = {} if source is None else parts_of(source, ALL_CODE[path])
            except (SyntaxError, ValueError) as error:
                raise UnreadableSourcesError(
                    f"kvoxide cannot check this vLLM, because this Python cannot parse "
                    f"{self.origins[path]}: {error}; install a supported vLLM release"
                ) from None
        return self._parsed[path]


def _differences(known: dict[str, FileCode], found: dict[str, Parts]) -> Iterator[str]:
    for path, parts in found.items():
        expected = known[path].parts if path in known else {}
        if parts is expected:
            continue
        if expected and not parts:
            yield f"{path} is missing"
            continue
        for key in sorted(expected.keys() | parts.keys()):
            before, now = expected.get(key), parts.get(key)
            if before != now and (change := _change(key, before, now)):
                yield f"{path}: {_name_of(key)} {change}"


def _change(key: str, before: str | None, now: str | None) -> str | None:
    """Returns what happened to a part; None for an import that came or went where the code that
    uses it shows that."""
    if key.startswith("import "):
        was = before or (f"builtins:{_name_of(key)}" if hasattr(builtins, _name_of(key)) else None)
        return f"comes from {now}, not from {was}" if was and now else None
    if before is None:
        return "is new"
    return "is missing" if now is None else "has changed"


def _name_of(key: str) -> str:
    return "code outside of functions" if key == MODULE_LEVEL else key.partition(" ")[2]


def _digest(parts: dict[str, Parts]) -> str:
    digest = hashlib.sha256()
    for path in sorted(parts):
        for key in sorted(parts[path]):
            digest.update(f"{path}\n{key}\n{parts[path][key]}\n".encode())
    return digest.hexdigest()
