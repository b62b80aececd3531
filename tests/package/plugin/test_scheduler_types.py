"""Tests of scheduler classes whose source checks for a type that kvoxide's objects do not have."""

import pytest
from kvoxide.vllm.environment.schedulers.uses import unserved_uses

SOURCE = """
class Own:
    def look(self):
        groups = self.kv_cache_manager.coordinator.single_type_managers
        for group in groups:
            if {condition}:
                return group
"""


@pytest.mark.parametrize(
    ("condition", "use"),
    [
        (
            "isinstance(group.req_to_blocks, defaultdict)",
            "asks whether req_to_blocks is a defaultdict",
        ),
        (
            "isinstance(group.block_pool.blocks, (list, tuple))",
            "asks whether block_pool.blocks is a list",
        ),
        ("type(group.num_cached_block) is dict", "compares the type of num_cached_block"),
        ("type(group) == Manager", "compares the type of single_type_managers[...]"),
        ("type(group.block_pool) in (BlockPool,)", "compares the type of block_pool"),
    ],
)
def test_a_type_that_differs_is_named_with_its_line(condition: str, use: str) -> None:
    assert unserved_uses(SOURCE.format(condition=condition), "Own") == [f"{use} in look(), line 6"]


@pytest.mark.parametrize(
    "condition",
    [
        "isinstance(group.num_cached_block, dict)",
        "isinstance(group.req_to_blocks, dict)",
        "isinstance(group, FullAttentionManager)",
        "type(self) is Own",
    ],
)
def test_types_that_kvoxides_objects_have_are_served(condition: str) -> None:
    assert unserved_uses(SOURCE.format(condition=condition), "Own") == []
