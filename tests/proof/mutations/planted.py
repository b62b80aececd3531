"""The list of planted errors."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_name("planted.toml")
CRATE: Final = Path("rust/core")


@dataclass(frozen=True)
class NamedTest:
    """A test of the core. It is in the library if ``binary`` is ``lib``."""

    binary: str
    name: str

    @property
    def source(self) -> Path:
        """The file that contains the test, relative to the workspace."""
        *modules, _ = self.name.split("::")
        if self.binary == "lib":
            folder = CRATE / "src"
            modules = [module for module in modules if module != "tests"]
        else:
            folder = CRATE / "tests"
            modules = [self.binary, *modules]
        return folder.joinpath(*modules).with_suffix(".rs")


@dataclass(frozen=True)
class Mutation:
    """One line of ``file`` with an error in it, and the test that catches the error."""

    about: str
    file: Path
    old: str
    new: str
    test: NamedTest

    def fits(self, text: str) -> bool:
        """Return whether the line is in the text exactly once."""
        return text.count(self.old) == 1


def mutations() -> list[Mutation]:
    """Return every planted error, in order."""
    with LIST.open("rb") as file:
        entries = tomllib.load(file)["mutation"]
    return [
        Mutation(
            about=entry["about"],
            file=CRATE / "src" / entry["file"],
            old=entry["old"],
            new=entry["new"],
            test=NamedTest(entry["binary"], entry["test"]),
        )
        for entry in entries
    ]
