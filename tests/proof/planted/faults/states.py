"""Errors in the manager of recurrent states."""

from typing import Any

from vllm.v1.core.single_type_kv_cache_manager import MambaManager

from ..fault import Faults, Plant

states = Faults("recurrent states")
AREAS = (states,)


class NoNotes(set[bytes]):
    def add(self, _: bytes) -> None:
        return


@states
def hits_in_the_same_step(plant: Plant) -> None:
    plant.after_init(MambaManager, lambda self: setattr(self, "cached_blocks_this_step", NoNotes()))


def always(plant: Plant, name: str, value: Any) -> None:
    """Fix an attribute to a value, so that no code can change it."""
    plant.put(MambaManager, name, property(lambda _: value, lambda *_: None))


@states
def checkpoint_block_kept_for_drafts(plant: Plant) -> None:
    always(plant, "drop_eagle_checkpoint_block", False)


@states
def no_state_at_a_junction(plant: Plant) -> None:
    always(plant, "shared_prefix_checkpoint", False)


@states
def no_blocks_for_drafts(plant: Plant) -> None:
    plant.after_init(MambaManager, lambda self: setattr(self, "num_speculative_blocks", 0))


@states
def state_needs_a_block_more(plant: Plant) -> None:
    plant.around(
        MambaManager, "get_num_blocks_to_allocate", lambda original, *a, **k: original(*a, **k) + 1
    )


@states
def state_kept_a_step_longer(plant: Plant) -> None:
    def get_num_skipped_tokens(original: Any, self: Any, num_computed_tokens: int) -> int:
        return max(int(original(self, num_computed_tokens) - self.block_size), 0)

    plant.around(MambaManager, "get_num_skipped_tokens", get_num_skipped_tokens)


states.lose(MambaManager, "_needs_internal_checkpoint", "no_state_inside_a_chunk", False)
states.lose(MambaManager, "reachable_block_mask", "every_state_kept")
states.lose(MambaManager, "_remove_blocks_in_range", "no_state_freed")
states.lose(MambaManager, "_cache_partial_tail_block", "state_at_the_tail_not_cached")
