"""Methods of vLLM's class that other code calls with kvoxide's manager, in a process where vLLM
loaded its plugins."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.environment import Settings, UnsupportedError, settings  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager  # noqa: E402

from tests.testing.small_world import (  # noqa: E402
    BLOCK_SIZE,
    config,
    full,
    make_manager,
    make_request,
    states,
    stock_manager,
    traffic,
    window,
)

ROW = 3 * BLOCK_SIZE


def states_in_chunks() -> Any:
    """States that are kept inside a chunk of the prompt too."""
    return replace(
        states(),
        num_speculative_blocks=0,
        num_prefill_checkpoint_blocks=1,
        prefill_checkpoint_alignment=BLOCK_SIZE,
    )


MODELS: dict[str, dict[str, Any]] = {
    "full and window": {"kv_cache_config": config(full(), window())},
    "full and states": {
        "kv_cache_config": config(full(), states()),
        "scheduler_block_size": ROW,
        "enable_kv_cache_events": True,
    },
    "full and states in chunks": {
        "kv_cache_config": config(full(), states_in_chunks()),
        "scheduler_block_size": ROW,
    },
}
of_models = pytest.mark.parametrize("model", MODELS)


def both(model: str) -> Iterator[Any]:
    yield stock_manager(**MODELS[model])
    manager = make_manager(**MODELS[model])
    assert isinstance(manager, native_class())
    yield manager


class OfClass:
    """A manager each of whose methods is the one of vLLM's class."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        method = vars(StockManager).get(name)
        if not callable(method):
            return getattr(self._manager, name)
        return lambda *args, **kwargs: method(self._manager, *args, **kwargs)


def memory(manager: Any) -> list[Any]:
    """Return the state of the pool and the groups of vLLM's manager."""
    pool = manager.block_pool
    seen: list[Any] = [
        [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        [(block.ref_cnt, block.block_hash) for block in pool.blocks[1:]],
    ]
    for group in manager.coordinator.single_type_managers:
        tables = {name: [b.block_id for b in row] for name, row in group.req_to_blocks.items()}
        seen.append([tables, dict(group.num_cached_block)])
        names = ("_checkpoints", "last_state_block_idx", "_num_retired_blocks")
        seen += [dict(getattr(group, name, {})) for name in names]
        seen.append(sorted(getattr(group, "_allocated_block_reqs", ())))
    return seen


@of_models
@pytest.mark.parametrize("num_before", [0, 30])
def test_traffic_through_the_methods_of_the_class(model: str, num_before: int) -> None:
    seen = []
    for manager in both(model):
        before = traffic(manager, num_before, 1)
        seen.append([before, traffic(OfClass(manager), 40, 2), memory(manager)])
    assert str(seen[0]) == str(seen[1])


@of_models
@pytest.mark.parametrize("name", ["get_computed_blocks", "free", "remove_skipped_blocks"])
def test_methods_that_the_engine_serves_keep_it(model: str, name: str) -> None:
    seen = []
    for manager in both(model):
        request = make_request("a", list(range(200)))
        manager.allocate_slots(request, 192)
        calls = {
            "get_computed_blocks": lambda m, r: StockManager.get_computed_blocks(m, r)[1:],
            "free": StockManager.free,
            "remove_skipped_blocks": lambda m, r: StockManager.remove_skipped_blocks(
                m, r.request_id, 150
            ),
        }
        seen.append([calls[name](manager, request), memory(manager)])
    assert str(seen[0]) == str(seen[1])


@of_models
@pytest.mark.parametrize("num_tokens", [ROW, 2 * ROW + 20, 3 * ROW - 1])
@pytest.mark.parametrize("must_fit", [True, False])
def test_the_first_step_of_a_request_is_vllms(model: str, num_tokens: int, must_fit: bool) -> None:
    """A state inside the chunk is noted before blocks are allocated."""
    seen = []
    for manager in both(model):
        outcome: list[Any] = []
        for name in "abc":
            request = make_request(name, [ord(name), *range(num_tokens)])
            manager.new_step_starts()
            new = StockManager.allocate_slots(
                manager, request, num_tokens, full_sequence_must_fit=must_fit
            )
            outcome += [new.get_block_ids(), memory(manager)]
        seen.append(outcome)
    assert str(seen[0]) == str(seen[1])


def test_require_refuses_the_step_before_it_changes_anything() -> None:
    with settings.using(Settings(mode="require")):
        manager = make_manager(**MODELS["full and states in chunks"])
        before = manager.engine.state_digest()
        request = make_request("a", list(range(2 * ROW + 20)))
        with pytest.raises(UnsupportedError, match="get_num_blocks_to_allocate"):
            StockManager.allocate_slots(manager, request, 2 * ROW + 20)
        assert manager.engine.state_digest() == before
