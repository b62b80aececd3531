"""Describe the CPU memory of a run."""

from dataclasses import dataclass

from kvoxide._core import HostMemory


@dataclass(frozen=True)
class Host:
    """The CPU memory of each instance, and the name that it has in tables."""

    name: str
    memory: HostMemory

    @property
    def num_bytes(self) -> int:
        """The bytes that all chunks take."""
        return self.memory.num_chunks * self.memory.chunk_bytes
