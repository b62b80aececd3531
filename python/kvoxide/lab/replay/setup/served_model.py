"""The model whose groups are played: its plan, and the memory of each rank."""

from dataclasses import dataclass
from typing import Any, Final

from kvoxide.lab.model import GPUS, Plan
from kvoxide.lab.replay.input import Groups, groups_text, parse_groups

_GIB: Final = 2**30
# Of a deployment; the rest of it is recorded elsewhere.
_RECORDED: Final = ("tensor_parallel", "pipeline_parallel", "cache_dtype", "block_size", "gpu")


@dataclass(frozen=True)
class ServedModel:
    """A model whose groups are played. ``memories`` are in bytes, what each rank has for its KV
    cache; none where the blocks are given."""

    plan: Plan
    memories: tuple[int, ...]

    @property
    def groups(self) -> Groups:
        """The model's groups."""
        return parse_groups(groups_text(self.plan.kv_cache_groups))

    @property
    def pool_sizes(self) -> tuple[int, ...]:
        """The blocks that each memory holds. Raises :class:`~kvoxide.ConfigError` if a request of
        the model's length does not fit."""
        return tuple(map(self.plan.num_blocks, self.memories))

    @property
    def title(self) -> str:
        """Return what was derived, for comparison with a server's log."""
        memories = ", ".join(f"{memory / _GIB:,.2f} GiB" for memory in self.memories)
        of_memory = f"{memories} of each rank; " if memories else ""
        return (
            f"{self.plan.architecture}: {of_memory}{self.plan.block_bytes:,} bytes per block;"
            f" max_model_len {self.plan.max_model_len:,}\n"
            + "\n".join([self._served_as, *self.plan.notes, *self.plan.describe()])
        )

    @property
    def _served_as(self) -> str:
        plan, deployment = self.plan, self.plan.deployment
        source = f", from {plan.cache_dtype_source}" if plan.cache_dtype_source else ""
        asked = f"; answered by {plan.asked}" if plan.asked else ""
        return f"KV cache in {plan.cache_dtype}{source}; on a {GPUS[deployment.gpu].name}{asked}"

    def record(self) -> dict[str, Any]:
        """The same as a JSON value."""
        plan = self.plan
        return {
            "architecture": plan.architecture,
            "memories": list(self.memories),
            "block_bytes": plan.block_bytes,
            "max_model_len": plan.max_model_len,
            "hit_tokens": plan.hit_tokens if plan.prefix_caching else None,
            "prefix_caching": plan.prefix_caching,
            "cache_dtype_source": plan.cache_dtype_source or None,
            "asked": plan.asked or None,
            "notes": list(plan.notes),
            **{name: getattr(plan.deployment, name) for name in _RECORDED},
            "layers_per_group": plan.layers_per_group,
        }
