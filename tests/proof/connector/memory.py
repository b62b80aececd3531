"""The content of the blocks of a GPU: for each token the prefix that it ends, for a state the last
one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.core.kv_cache_utils import resolve_dcp_kv_block_size
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    MambaSpec,
    RSWASpec,
    SlidingWindowSpec,
)

# The index of the block's group, then the content of its positions.
Content = list[Any]
Tables = list[list[int]]

_NUM_SAMPLED = 5
_FIRST_SAMPLED = 700


class WrongBytesError(AssertionError):
    """A block does not have the content that the scheduler expects."""


class Prefixes:
    """Numbers prefixes of texts. Equal prefixes get equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._texts: dict[tuple[int, ...], Text] = {}

    def text(self, prompt: Sequence[int]) -> "Text":
        return self._texts.setdefault(tuple(prompt), Text(self, prompt))

    def number(self, prefix: int, token: int) -> int:
        return self._numbers.setdefault((prefix, token), len(self._numbers) + 1)


@dataclass
class Text:
    """A request's tokens. Sampled tokens depend on all tokens before them, and on nothing else."""

    prefixes: Prefixes
    prompt: Sequence[int]
    chain: list[int] = field(default_factory=list)

    def up_to(self, num_tokens: int) -> list[int]:
        """Return the number of the prefix that ends with each token, for at least
        ``num_tokens``."""
        while len(self.chain) < num_tokens:
            last = self.chain[-1] if self.chain else 0
            self.chain.append(self.prefixes.number(last, self.token(len(self.chain))))
        return self.chain

    def token(self, place: int) -> int:
        if place < len(self.prompt):
            return self.prompt[place]
        return _FIRST_SAMPLED + self.up_to(place)[place - 1] % _NUM_SAMPLED


class Group:
    """A group of layers, and which blocks a token of a request needs in it."""

    def __init__(self, index: int, spec: Any, dcp: int) -> None:
        self.index, self._spec = index, spec
        self.size = resolve_dcp_kv_block_size(spec, dcp)
        self.is_state = isinstance(spec, MambaSpec)

    def needed(self, num_computed: int, num_prompt_tokens: int) -> Iterator[range]:
        """Yield the ranges of tokens that the next token reads, of ``num_computed``."""
        spec, start = self._spec, 0
        if isinstance(spec, SlidingWindowSpec):
            start = num_computed + 1 - spec.sliding_window
        elif isinstance(spec, ChunkedLocalAttentionSpec):
            start = num_computed // spec.attention_chunk_size * spec.attention_chunk_size
        elif isinstance(spec, RSWASpec) and num_computed > num_prompt_tokens:
            yield range(num_prompt_tokens)
            start = max(num_prompt_tokens, num_computed - spec.rswa_window)
        yield range(max(start, 0), num_computed)


class Memory:
    """The blocks of one GPU."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.blocks: dict[int, Content] = {}
        self.num_checked = 0

    def copy(self, source: int, target: int) -> None:
        self.blocks[target] = list(self.blocks.get(source, ()))

    def compute(self, tables: Tables, chain: list[int], start: int, end: int) -> None:
        """Compute the tokens from ``start`` to before ``end``."""
        for group, table in zip(self.groups, tables, strict=True):
            if group.is_state:
                self._advance(group, table, chain, start, end)
                continue
            for at in range(start // group.size, -(-end // group.size)):
                low, high = max(start, at * group.size), min(end, (at + 1) * group.size)
                content = self._content(table[at], group)
                first = 1 + low - at * group.size
                content[first : first + high - low] = chain[low:high]

    def _advance(
        self, group: Group, table: list[int], chain: list[int], start: int, end: int
    ) -> None:
        if start:
            self._check(group, table[(start - 1) // group.size], [chain[start - 1]], 1)
        self.blocks[table[(end - 1) // group.size]] = [group.index, chain[end - 1]]

    def _content(self, block_id: int, group: Group) -> Content:
        if not block_id:
            raise WrongBytesError(f"tokens are computed into the null block of group {group.index}")
        content = self.blocks.get(block_id)
        if not content or content[0] != group.index:
            content = self.blocks[block_id] = [group.index, *[None] * group.size]
        return content

    def check(self, tables: Tables, chain: list[int], num_tokens: int, num_prompt: int) -> None:
        """Check that attention after the first ``num_tokens`` tokens of a request finds the right
        content."""
        for group, table in zip(self.groups, tables, strict=True):
            # A state is gone once the next one is computed. That computation checks it.
            for tokens in () if group.is_state else group.needed(num_tokens, num_prompt):
                self.check_blocks(group, dict(enumerate(table)), chain, tokens)

    def check_blocks(
        self, group: Group, table: dict[int, int], chain: list[int], tokens: range
    ) -> None:
        """Check that the blocks of a group, each by its position in the request, hold its
        ``tokens``."""
        if not tokens:
            return
        if group.is_state:
            last = tokens[-1]
            self._check(group, table[last // group.size], [chain[last]], 1)
            return
        for at in range(tokens[0] // group.size, tokens[-1] // group.size + 1):
            low = max(tokens[0], at * group.size)
            high = min(tokens[-1] + 1, (at + 1) * group.size)
            self._check(group, table[at], chain[low:high], 1 + low - at * group.size)

    def _check(self, group: Group, block_id: int, wanted: list[int], first: int) -> None:
        self.num_checked += 1
        content = self.blocks.get(block_id) or [None]
        found = content[first : first + len(wanted)]
        if not block_id or content[0] != group.index or found != wanted:
            raise WrongBytesError(
                f"block {block_id} of group {group.index}: {content}, not {wanted} from {first}"
            )
