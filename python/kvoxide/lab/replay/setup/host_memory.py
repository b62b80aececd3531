"""Define the options for CPU memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict, cast

import click

from kvoxide._core import ConfigError, HostMemory
from kvoxide.lab.model import host_chunk_bytes
from kvoxide.lab.options import MAX_INTEGER, Command, exclusive, gathered, parsed_with
from kvoxide.lab.replay.input import Deployment, Groups, Host, memory_text
from kvoxide.lab.replay.serving import parse_duration, parse_pairs
from kvoxide.lab.replay.setup.memory_sizes import (
    parse_bandwidth,
    parse_memories,
    parse_numbers_of_blocks,
)
from kvoxide.lab.replay.setup.recording_defaults import is_default
from kvoxide.lab.replay.setup.served_model import ServedModel

# Without a model, a token takes as many bytes as in the default step times.
_TOKEN_BYTES: Final = 128 * 1024
_LINK: Final = ("load", "store", "load-latency", "store-latency")
_POLICIES: Final = ("lru", "arc", "adaptive")


class HostLink(TypedDict, total=False):
    """Arguments of :class:`~kvoxide.HostMemory` for its transfers."""

    load_bandwidth: float
    load_latency: float
    store_bandwidth: float
    store_latency: float


@dataclass(frozen=True)
class HostOptions:
    """The options for CPU memory. Sizes that were not given are None."""

    host_memories: tuple[int, ...] | None
    host_blocks: tuple[int, ...] | None
    eviction_policies: tuple[str, ...]
    store_threshold: int
    offload_prompt_only: bool
    host_link: HostLink

    def hosts(
        self, served: ServedModel | None, recorded: Deployment | None, groups: Groups
    ) -> tuple[Host | None, ...]:
        """Return the CPU memory of each run; None for a run without it. A recorded server's CPU
        memory is the default.

        Raises :class:`click.UsageError` for options that do not go together, and
        :class:`~kvoxide.ConfigError` for memory without room for a chunk.
        """
        if self.host_memories is not None and self.host_blocks is not None:
            raise exclusive("--host-memory", "--host-blocks")
        recorded_memory = recorded.host_memory if recorded else None
        if self.host_memories is None and self.host_blocks is None:
            self._require_no_settings(recorded_memory)
            if recorded_memory is None:
                return (None,)
            memory = HostMemory(**{**recorded_memory, **self.host_link})
            return (Host(_name(memory.num_chunks * memory.chunk_bytes, memory), memory),)
        chunk_bytes = self._chunk_bytes(served, recorded_memory, groups)
        return tuple(self._each(chunk_bytes))

    def _require_no_settings(self, recorded: Mapping[str, Any] | None) -> None:
        names = ("eviction_policies", "store_threshold", "offload_prompt_only", "host_link")
        given = [name for name in names if not is_default(name)]
        if given and (recorded is None or given != ["host_link"]):
            raise click.UsageError(f"{_OPTION_OF[given[0]]} needs --host-memory or --host-blocks")

    def _chunk_bytes(
        self, served: ServedModel | None, recorded: Mapping[str, Any] | None, groups: Groups
    ) -> int:
        if served is not None:
            return host_chunk_bytes(served.plan)
        if recorded is not None:
            return int(recorded["chunk_bytes"])
        if self.host_memories is not None and any(self.host_memories):
            raise click.UsageError(
                "--host-memory needs --model, whose blocks have a size in bytes; without a model,"
                " give --host-blocks"
            )
        return max(spec.block_size for spec in groups.specs) * _TOKEN_BYTES

    def _each(self, chunk_bytes: int) -> Iterator[Host | None]:
        for size in self.host_memories or self.host_blocks or ():
            if size == 0:
                yield None
                continue
            num_chunks = size // chunk_bytes if self.host_memories is not None else size
            if num_chunks == 0:
                raise ConfigError(
                    f"{size:,} bytes of CPU memory have no room for a block of"
                    f" {chunk_bytes:,} bytes; use more, such as 64GiB"
                )
            for policy in self.eviction_policies:
                memory = self._memory(num_chunks, chunk_bytes, policy)
                is_bytes = self.host_memories is not None
                yield Host(_name(size if is_bytes else None, memory), memory)

    def _memory(self, num_chunks: int, chunk_bytes: int, policy: str) -> HostMemory:
        return HostMemory(
            num_chunks,
            chunk_bytes,
            eviction_policy=policy,  # type: ignore[arg-type]
            store_threshold=self.store_threshold,
            offload_prompt_only=self.offload_prompt_only,
            **self.host_link,
        )


def _name(num_bytes: int | None, memory: HostMemory) -> str:
    size = f"{memory.num_chunks:,} blocks" if num_bytes is None else memory_text(num_bytes)
    return f"{size} {memory.eviction_policy}"


def parse_host_blocks(text: str) -> tuple[int, ...]:
    """Return numbers of blocks of CPU memory, smallest first, from a text with commas."""
    sizes = parse_numbers_of_blocks(text)
    for size in sizes:
        if not 0 <= size <= MAX_INTEGER:
            raise ConfigError(
                f"{size} blocks are not possible; CPU memory has 0 to {MAX_INTEGER:,} blocks"
            )
    return tuple(sorted(sizes))


def parse_host_link(text: str) -> HostLink:
    """Return the arguments of :class:`~kvoxide.HostMemory` for ``PART=VALUE``, comma separated,
    such as ``load=25GB/s,load-latency=200us``. Raises :class:`~kvoxide.ConfigError`."""
    given: dict[str, float] = {}
    for name, value in parse_pairs(
        text, f"write it as load=25GB/s,store=25GB/s; the names are {', '.join(_LINK)}"
    ):
        if name not in _LINK:
            raise ConfigError(f"{text!r}: {name!r} is not known; it can be {', '.join(_LINK)}")
        if name.endswith("latency"):
            given[name.replace("-", "_")] = parse_duration(text, value)
        else:
            given[f"{name}_bandwidth"] = parse_bandwidth(value)
    link = cast("HostLink", given)
    HostMemory(1, 1, **link)
    return link


def _parse_policies(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def host_options(command: Command) -> Command:
    """The options for CPU memory; the command is given them as ``host``, :class:`HostOptions`."""
    command = gathered("host", HostOptions)(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTION_OF: Final = {
    "eviction_policies": "--eviction-policy",
    "store_threshold": "--store-threshold",
    "offload_prompt_only": "--offload-prompt-only",
    "host_link": "--host-link",
}
_OPTIONS: Final = (
    click.option(
        "--host-memory",
        "host_memories",
        metavar="SIZE[,SIZE...]",
        callback=parsed_with(parse_memories),
        help="CPU memory of each instance, such as 64GiB (vLLM's cpu_bytes_to_use); 0 is none."
        " Needs --model.",
    ),
    click.option(
        "--host-blocks",
        metavar="N[,N...]",
        callback=parsed_with(parse_host_blocks),
        help="CPU memory in blocks. Replaces --host-memory.",
    ),
    click.option(
        "--eviction-policy",
        "eviction_policies",
        type=click.Choice(_POLICIES),
        multiple=True,
        default=("lru",),
        show_default="lru",
        callback=parsed_with(_parse_policies),
        help="Order in which blocks leave CPU memory. vLLM does not have adaptive, which stores"
        " blocks when the pool is about to evict them. Repeat the option to compare.",
    ),
    click.option(
        "--store-threshold",
        type=click.IntRange(min=0, max=MAX_INTEGER),
        default=0,
        show_default=True,
        metavar="N",
        help="Store a block in CPU memory when it is computed for the Nth time.",
    ),
    click.option(
        "--offload-prompt-only/--no-offload-prompt-only",
        default=True,
        show_default=True,
        help="Store only blocks of prompts in CPU memory. It has no effect on adaptive.",
    ),
    click.option(
        "--host-link",
        metavar="PART=VALUE,...",
        default="load=25GB/s,store=25GB/s,load-latency=200us,store-latency=200us",
        show_default=True,
        callback=parsed_with(parse_host_link),
        help="Bandwidth and latency between GPU and CPU memory, in runs with times.",
    ),
)
