"""Computes how many blocks the memory of a rank has, and whether a request fits into them."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.grouping import LayerGroup

_GIB: Final = 2**30


def block_bytes(groups: Sequence[LayerGroup], num_layers: int, deployment: Deployment) -> int:
    """Return the bytes of a block on the pipeline rank where it is largest. All groups take their
    blocks from the same memory, so the largest group of the rank counts."""
    stages = pipeline_stages(num_layers, deployment.pipeline_parallel)
    sizes = [max(group.block_bytes_within(stage) for group in groups) for stage in stages]
    if 0 in sizes:
        stage = stages[sizes.index(0)]
        raise ConfigError(
            f"the pipeline rank with layers {stage.start} to {stage.stop - 1} has no KV cache; use"
            " fewer pipeline ranks"
        )
    return max(sizes)


def pipeline_stages(num_layers: int, ranks: int) -> list[range]:
    """Return the layers of each rank of a pipeline. If they cannot be divided equally, the
    remaining layers go to ranks before the last, which also has the output layer. Later ranks get
    them first."""
    if ranks > num_layers:
        raise ConfigError(f"{ranks} pipeline ranks cannot share {num_layers} layers; use fewer")
    counts = [num_layers // ranks] * ranks
    for left in range(num_layers % ranks):
        counts[-2 - left] += 1
    return [range(first, end) for first, end in pairwise(accumulate(counts, initial=0))]


def num_blocks(
    memory: int, block: int, groups: Sequence[LayerGroup], model_len: int, deployment: Deployment
) -> int:
    """Return the number of blocks of ``block`` bytes in ``memory`` bytes. One request of
    ``model_len`` tokens and the null block must fit. Raises :class:`~kvoxide.ConfigError`, which
    says what would fit."""
    in_flight = deployment.max_in_flight_tokens
    needed = request_blocks(groups, model_len, in_flight)
    blocks = memory // block
    fitting = 0 if blocks > needed else _longest_fitting(blocks - 1, groups, model_len, in_flight)
    require_request(memory, block, needed, model_len, fitting)
    has_states = any(group.spec.is_state for group in groups)
    require_states(blocks, deployment, has_states=has_states)
    return blocks


def require_request(memory: int, block: int, needed: int, model_len: int, fitting: int = 0) -> None:
    """Raise :class:`~kvoxide.ConfigError` unless a request of ``model_len`` tokens and the null
    block fit. The request needs ``needed`` blocks of ``block`` bytes. ``fitting`` tokens would fit,
    0 if that is not known."""
    blocks = memory // block
    if blocks > needed:
        return
    would_fit = f"; {fitting:,} tokens would fit" if fitting else ""
    raise ConfigError(
        f"{memory / _GIB:.2f} GiB hold {blocks:,} blocks of {block:,} bytes. One request of"
        f" max_model_len {model_len:,} needs {needed:,} and the null block,"
        f" {(needed + 1) * block / _GIB:.2f} GiB{would_fit}"
    )


def require_states(blocks: int, deployment: Deployment, *, has_states: bool) -> None:
    """Raise :class:`~kvoxide.ConfigError` if there are fewer blocks than running requests, because
    each keeps a state. vLLM does not start then, because it cannot capture CUDA graphs."""
    requests = deployment.max_num_seqs
    if requests is None or requests <= blocks or not has_states:
        return
    raise ConfigError(
        f"vLLM refuses to start: max_num_seqs ({requests}) exceeds available Mamba cache blocks"
        f" ({blocks}); use --concurrency {blocks}"
    )


def request_blocks(groups: Sequence[LayerGroup], model_len: int, in_flight: int) -> int:
    """Return the most blocks that one request of ``model_len`` tokens takes, in all groups."""
    return sum(group.blocks_of_request(model_len, in_flight) for group in groups)


def _longest_fitting(
    blocks: int, groups: Sequence[LayerGroup], model_len: int, in_flight: int
) -> int:
    """Return the length of the longest request that fits into the blocks, 0 if none fits."""
    fitting, too_long = 0, model_len
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        if request_blocks(groups, middle, in_flight) <= blocks:
            fitting = middle
        else:
            too_long = middle
    return fitting
