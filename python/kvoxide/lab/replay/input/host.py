"""Describe the CPU memory of a run."""

from dataclasses import dataclass, replace
from typing import Final

from kvoxide._core import HostMemory

_GIB: Final = 2**30


@dataclass(frozen=True)
class Host:
    """The CPU memory of each instance, and the name that it has in tables."""

    name: str
    memory: HostMemory

    @property
    def num_bytes(self) -> int:
        """The bytes that all chunks take."""
        return self.memory.num_chunks * self.memory.chunk_bytes

    def without_policy(self) -> "Host":
        """Return the same memory, named after its size alone."""
        return replace(self, name=self.name.rpartition(" ")[0])


def memory_text(num_bytes: int) -> str:
    """Return bytes in words, in GiB or, for less than one, in MiB."""
    if num_bytes < _GIB:
        return f"{num_bytes / 2**20:,.2f}".rstrip("0").rstrip(".") + " MiB"
    return f"{num_bytes / _GIB:,.2f}".rstrip("0").rstrip(".") + " GiB"
