"""A connector that reads a request's block table, as a whole and block by block."""

from collections.abc import Iterator
from typing import Any

from benches.neighbours.pairs import BLOCK_SIZE, PROMPTS, Act, Pair
from benches.neighbours.rows import Measured


def measure(prompts: tuple[int, ...] = PROMPTS) -> Iterator[Measured]:
    """Yield microseconds per block of the table, or per call."""
    for num_tokens in prompts:
        pair = Pair.of_prompt(num_tokens)
        num_blocks = num_tokens // BLOCK_SIZE
        yield from pair.both("req_to_blocks[id][i]", _by_position, per=num_blocks)
        yield from pair.both("for block in req_to_blocks[id]", _all, per=num_blocks)
        yield from pair.both("get_blocks(id).blocks", _get_blocks, per=1)


def _rows(side: Any) -> Any:
    return side.manager.coordinator.single_type_managers[0].req_to_blocks


def _by_position(side: Any) -> Act:
    rows = _rows(side)
    num_blocks = len(side.request.block_hashes)

    def look(side: Any) -> None:
        del side
        for position in range(num_blocks):
            _ = rows["held"][position]

    return look


def _all(side: Any) -> Act:
    rows = _rows(side)

    def look(side: Any) -> None:
        del side
        for block in rows["held"]:
            _ = block.block_id

    return look


def _get_blocks(side: Any) -> Act:
    manager = side.manager

    def look(side: Any) -> None:
        del side
        _ = manager.get_blocks("held").blocks[0][-1]

    return look
