"""Choose groups, pool sizes and scheduler limits: from options, a model or a recorded server."""

from collections.abc import Iterable
from dataclasses import dataclass

import click

from kvoxide._core import ConfigError
from kvoxide.lab.options import MAX_INTEGER, exclusive
from kvoxide.lab.replay.input import Deployment, Groups, preset_groups
from kvoxide.lab.replay.setup.memory_sizes import parse_numbers_of_blocks
from kvoxide.lab.replay.setup.recording_defaults import is_default
from kvoxide.lab.replay.setup.served_model import ServedModel

DEFAULT_PRESET = "llama"
DEFAULT_BLOCKS = "50000"
# The null block, and one that can be used.
MIN_BLOCKS = 2


@dataclass(frozen=True)
class Limits:
    """The KV cache groups, the sizes of pools in blocks, the most requests at a time, and the most
    tokens in a step."""

    groups: Groups
    pool_sizes: tuple[int, ...]
    concurrency: int
    max_batched_tokens: int


@dataclass(frozen=True)
class LimitOptions:
    """The limits that options give, or their defaults."""

    groups: Groups | None
    preset: str | None
    pool_sizes: tuple[int, ...]
    concurrency: int
    max_batched_tokens: int

    def limits(self, served: ServedModel | None, recorded: Deployment | None) -> Limits:
        """Return the limits. A served model determines groups and perhaps pool sizes. Values of a
        recorded server replace defaults.

        Raises :class:`click.UsageError` for options that do not go together.
        """
        return Limits(
            self._groups(served, recorded),
            self._pool_sizes(served, recorded),
            self.concurrency,
            self.max_batched_tokens,
        )

    def _groups(self, served: ServedModel | None, recorded: Deployment | None) -> Groups:
        options = {"--groups": self.groups, "--preset": self.preset, "--model": served}
        given = [name for name, value in options.items() if value is not None]
        if len(given) > 1:
            raise exclusive(*given[:2])
        if served is not None:
            return served.groups
        if recorded is not None and not given:
            if recorded.groups is None:
                raise click.UsageError(
                    "the recording does not contain the KV cache groups; give --groups, --preset"
                    " or --model"
                )
            return recorded.groups
        return self.groups or preset_groups(self.preset or DEFAULT_PRESET)

    def _pool_sizes(
        self, served: ServedModel | None, recorded: Deployment | None
    ) -> tuple[int, ...]:
        if served is not None:
            return self._pool_sizes_of(served)
        if recorded is not None and is_default("pool_sizes"):
            return (recorded.num_blocks,)
        return self.pool_sizes

    def _pool_sizes_of(self, served: ServedModel) -> tuple[int, ...]:
        are_given = not is_default("pool_sizes")
        if are_given and served.memories:
            raise exclusive("--blocks", "--memory")
        if not are_given and not served.memories:
            raise click.UsageError("--model needs --memory or --blocks")
        if not are_given:
            return _checked_pool_sizes(served.pool_sizes)
        for blocks in self.pool_sizes:
            served.plan.check_blocks(blocks)
        return self.pool_sizes


def parse_pool_sizes(text: str) -> tuple[int, ...]:
    """Pool sizes in blocks, comma separated; smallest first."""
    return _checked_pool_sizes(parse_numbers_of_blocks(text))


def _checked_pool_sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    sizes = set(sizes)
    for size in sizes:
        if not MIN_BLOCKS <= size <= MAX_INTEGER:
            raise ConfigError(
                f"{size} blocks are not possible; a pool has {MIN_BLOCKS:,} to {MAX_INTEGER:,}"
                " blocks"
            )
    return tuple(sorted(sizes))
