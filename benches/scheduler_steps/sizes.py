"""The sizes of a run: its prompts, steps and pools."""

import argparse
from dataclasses import dataclass
from typing import Final

from kvoxide.lab.bench.layouts import LAYOUTS, Layout

LAYOUT_NAMES: Final = ("full", "gemma", "dsv4")
CONNECTORS: Final = ("none", "lru", "arc")
_SPARE_BLOCKS: Final = 1_000
_OTHER_TOKENS: Final = 1 << 16


@dataclass(frozen=True)
class Sizes:
    """One long prompt of ``tokens`` next to ``decoding`` requests. A step has ``chunk`` tokens. A
    phase that repeats the same step has ``steps`` steps."""

    layout_name: str
    tokens: int
    connector: str
    chunk: int
    decoding: int
    steps: int

    @classmethod
    def parsed(cls, arguments: argparse.Namespace) -> "Sizes":
        """Return the sizes that these arguments of the command give."""
        return cls(
            arguments.layout,
            arguments.tokens,
            arguments.connector,
            arguments.chunk,
            arguments.decoding,
            arguments.steps,
        )

    def problem(self) -> str | None:
        """Return why these sizes cannot be run, or None."""
        least = 2 * self.layout.scheduler_block_size
        if self.tokens < least:
            return (
                f"--tokens {self.tokens} is too short for {self.layout_name}; use at least {least}"
            )
        if min(self.decoding, self.steps) < 1:
            return "--decoding and --steps must be at least 1"
        if self.chunk <= self.decoding:
            return f"--chunk {self.chunk} has no room for a prompt; use more than --decoding"
        return None

    def arguments(self) -> list[str]:
        """Return the arguments that :meth:`parsed` reads."""
        options = ("tokens", "connector", "chunk", "decoding", "steps")
        return [self.layout_name, *(f"--{name}={getattr(self, name)}" for name in options)]

    @property
    def layout(self) -> Layout:
        """The KV cache groups."""
        return LAYOUTS[self.layout_name]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the long prompt, which ends inside a block. A prompt that fills its last block
        has a shorter hit on the GPU than in CPU memory."""
        size = self.layout.scheduler_block_size
        return self.tokens // size * size - 1

    @property
    def decoding_prompt(self) -> int:
        """Tokens of the prompt of each decoding request."""
        return min(1_000, self.tokens // 2)

    @property
    def max_model_len(self) -> int:
        """The longest request in tokens."""
        return self.tokens + _OTHER_TOKENS

    @property
    def gpu_blocks(self) -> int:
        """Blocks on the GPU: enough for the long prompt next to all decoding requests."""
        decoded = self.decoding_prompt + self._all_steps
        held = self.layout.blocks_held(self.tokens + self.steps, self.chunk)
        decoding = self.decoding * self.layout.blocks_held(decoded, self.decoding)
        return held + decoding + _SPARE_BLOCKS

    @property
    def _all_steps(self) -> int:
        """At least the number of steps of a run."""
        return 10 * self.steps + 8 * (self.tokens // (self.chunk - self.decoding) + 8)

    @property
    def blocks_to_decode(self) -> int:
        """Blocks that are free while the long prompt waits: enough for the decoding requests, and
        too few for the prompt."""
        whole = (group for group in self.layout.groups if group.window is None)
        growth = sum(self.steps * 3 // group.block_size + 1 for group in whole)
        return self.decoding * (growth + len(self.layout.groups))

    @property
    def host_blocks(self) -> int:
        """Blocks in CPU memory: the prompts, and a tenth more."""
        stored = self._stored(self.tokens) + self.decoding * self._stored(self.decoding_prompt)
        return stored * 11 // 10

    def _stored(self, tokens: int) -> int:
        """Return how many blocks the connector stores of a prompt, at least: of a window, only
        the blocks at its end."""
        boundary = -(-tokens // self.layout.scheduler_block_size) * self.layout.scheduler_block_size
        return sum(
            min(boundary, group.window or boundary) // group.block_size + 1
            for group in self.layout.groups
        )


def sizes_parser(
    prog: str | None = None, description: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser of the arguments that :meth:`Sizes.parsed` reads."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("layout", choices=LAYOUT_NAMES, help="KV cache groups, as in kvoxide bench")
    parser.add_argument(
        "--tokens", type=int, default=131_072, help="length of the long prompt (131072)"
    )
    parser.add_argument(
        "--connector",
        choices=CONNECTORS,
        default="lru",
        help="the policy of vLLM's offloading connector, or none (lru)",
    )
    parser.add_argument("--chunk", type=int, default=8_192, help="most tokens of a step (8192)")
    parser.add_argument("--decoding", type=int, default=64, help="short requests that decode (64)")
    parser.add_argument("--steps", type=int, default=30, help="steps of a repeated phase (30)")
    return parser
