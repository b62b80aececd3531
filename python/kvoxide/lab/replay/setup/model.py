"""Options that name a model and how it is served, in the place of groups and blocks."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from kvoxide._core import ConfigError
from kvoxide.lab.model import CACHE_DTYPES, GPUS, Deployment, gpu, read_model
from kvoxide.lab.options import Command, parsed_with, positive
from kvoxide.lab.replay.setup.memory_sizes import parse_memories
from kvoxide.lab.replay.setup.served_model import ServedModel

ASK_VARIABLE: Final = "KVOXIDE_ASK_VLLM"
_SERVING: Final = (
    "tensor_parallel",
    "pipeline_parallel",
    "cache_dtype",
    "block_size",
    "max_model_len",
    "gpu",
)


def model_options(command: Command) -> Command:
    """``--model`` and how it is served; the command is given them as ``served``, a
    :class:`ServedModel` or None, and ``prefix_caching``."""

    @wraps(command)
    def with_model(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        path, memories = options.pop("model"), options.pop("memories")
        ask = options.pop("ask_vllm")
        recorded_block_size = options.pop("recorded_block_size", None)
        serving = {name: options.pop(name) for name in _SERVING}
        wanted = serving["prefix_caching"] = options.pop("enable_prefix_caching")
        limits = {
            "max_batched_tokens": options["max_batched_tokens"],
            "max_num_seqs": options["concurrency"],
        }
        served = _served(path, memories, serving, limits, ask=ask)
        if served is not None and recorded_block_size and serving["block_size"] is None:
            serving["block_size"] = recorded_block_size
            note, served = _with_block_size(
                served,
                recorded_block_size,
                lambda: _served(path, memories, serving, limits, ask=ask),
            )
            if note and not options["quiet"]:
                click.echo(note, err=True)
        caches = wanted is not False if served is None else served.plan.prefix_caching
        return command(*args, served=served, prefix_caching=caches, **options)

    for option in reversed(_OPTIONS):
        with_model = option(with_model)
    return with_model  # type: ignore[return-value]


def _with_block_size(
    served: ServedModel, block_size: int, with_recorded: Callable[[], ServedModel | None]
) -> tuple[str | None, ServedModel]:
    """A model with the block size that a recorded server had, and what is to be said of it."""
    sizes = [spec.block_size for spec in served.groups.specs if not spec.kind.startswith("mamba")]
    if not sizes or sizes[0] == block_size:
        return None, served
    try:
        resized = with_recorded()
    except ConfigError as error:
        return (
            f"the recorded server had blocks of {block_size} tokens, which this model cannot have"
            f" ({error}). Blocks of {sizes[0]} tokens are used, as vLLM would choose"
        ), served
    return (
        f"blocks of {block_size} tokens are used as on the recorded server. vLLM would choose"
        f" {sizes[0]} for this model; --block-size changes it"
    ), resized or served


def _served(
    path: str | None,
    memories: tuple[int, ...] | None,
    serving: dict[str, Any],
    limits: dict[str, Any],
    *,
    ask: bool | None,
) -> ServedModel | None:
    given = {name: value for name, value in serving.items() if value is not None}
    if path is None:
        of_model = [name for name in given if name != "prefix_caching"]
        if of_model or memories:
            raise click.UsageError(f"{_option(*of_model, 'memory')} needs --model")
        return None
    deployment = Deployment(**given, **limits)
    return ServedModel(read_model(path, deployment, ask=ask), memories or ())


def _option(name: str, *_: str) -> str:
    return f"--{name.replace('cache_dtype', 'kv_cache_dtype').replace('_', '-')}"


_OPTIONS: Final[list[Callable[..., Any]]] = [
    click.option(
        "--model",
        metavar="DIR",
        help="Use the groups of the model with this config.json, or with the one in this folder.",
    ),
    click.option(
        "--memory",
        "memories",
        metavar="SIZE[,SIZE...]",
        callback=parsed_with(parse_memories),
        help="Memory of each rank for its KV cache, such as 60GiB. Replaces --blocks.",
    ),
    click.option(
        "--tensor-parallel",
        type=positive,
        metavar="N",
        help="Number of tensor parallel ranks; they share each layer.  [default: 1]",
    ),
    click.option(
        "--pipeline-parallel",
        type=positive,
        metavar="N",
        help="Number of pipeline parallel ranks; they share the layers.  [default: 1]",
    ),
    click.option(
        "--kv-cache-dtype",
        "cache_dtype",
        type=click.Choice(CACHE_DTYPES),
        help="Precision of the KV cache.  [default: auto]",
    ),
    click.option(
        "--block-size",
        type=positive,
        metavar="N",
        help="Tokens per block (vLLM's --block-size).  [default: vLLM's choice]",
    ),
    click.option(
        "--gpu",
        type=click.Choice(tuple(GPUS), case_sensitive=False),
        help=f"GPU that serves the model.  [default: {gpu.DEFAULT}]",
    ),
    click.option(
        "--ask-vllm/--no-ask-vllm",
        default=None,
        envvar=ASK_VARIABLE,
        help="Ask the installed vLLM for the model's groups; takes less than a minute, once. "
        " [default: if vLLM is installed]",
    ),
    click.option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        default=None,
        help="Enable or disable prefix caching, as vLLM's option does.  [default: as vLLM does with"
        " the model]",
    ),
    click.option(
        "--max-model-len",
        type=positive,
        metavar="N",
        help="Longest request in tokens.  [default: the model's limit]",
    ),
]
