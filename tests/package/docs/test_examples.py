"""Runs the examples of the pages that need no vLLM, and compares their output."""

import ast
import json
import re
from pathlib import Path

import kvoxide
import pytest
from kvoxide import (
    BlockHasher,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheManager,
    Policy,
    Request,
    RetentionReport,
)

from tests.testing import console
from tests.testing import doc_pages as pages
from tests.testing.doc_pages import Fence
from tests.testing.paths import DOCS

FENCES = [fence for page in pages.PRESENT for fence in pages.fences(page)]
EXAMPLES = [
    fence for fence in FENCES if fence.language == "console" and "kvoxide doctor" not in fence.text
]
RETENTION = DOCS / "explain/retention.md"


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_an_example_has_the_output_that_the_page_shows(example: Fence, tmp_path: Path) -> None:
    console.assert_shown(example, console.run(example, tmp_path))


def test_another_output_is_noticed() -> None:
    example = Fence(DOCS, "console", "$ kvoxide replay sample\n…\nadaptive … 45.1% …\n…\n")
    assert example.script() == "kvoxide replay sample\n"
    console.assert_shown(example, "sample\nadaptive 600 45.1% 7\nend\n")
    for other in ("sample\nadaptive 600 45.2% 7\n", "sample\n", ""):
        with pytest.raises(AssertionError):
            console.assert_shown(example, other)


@pytest.mark.parametrize(
    "fence", [each for each in FENCES if each.language == "python"], ids=lambda each: each.name
)
def test_python_in_pages_can_be_compiled_and_imports_what_exists(fence: Fence) -> None:
    for node in ast.parse(fence.text).body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            exec(ast.unparse(node))


def test_the_program_of_the_second_tier_prints_what_the_page_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = DOCS / "how-to/build-a-second-tier.md"
    program, printed = pages.fences(page)
    exec(program.text, {})
    assert capsys.readouterr().out == printed.text


@pytest.mark.parametrize(
    "fence", [each for each in FENCES if each.language == "json"], ids=lambda each: each.name
)
def test_json_in_pages_can_be_read(fence: Fence) -> None:
    json.loads(fence.text)


def test_versions_in_log_lines_are_the_present_one() -> None:
    text = "".join(fence.text for fence in FENCES)
    assert set(re.findall(r"^kvoxide: .* version (\d\S*): ", text, re.MULTILINE)) == {
        kvoxide.__version__
    }


# The example by hand: a window of 128 tokens, a prompt of 4,096 tokens, blocks of 16.
NUM_TOKENS, BLOCK_SIZE, WINDOW, NUM_BLOCKS = 4096, 16, 128, 700


def test_values_of_the_example_by_hand_are_those_of_the_formula() -> None:
    rows = re.findall(
        r"^\| ([\d, and]+?)(?:, without .*)? \| ([\d,]+) \| ([\d/]+) \|", example(), re.M
    )
    assert len(rows) == 5
    for boundaries, spacing, value in rows:
        s = number(spacing)
        numerator, _, denominator = value.partition("/")
        assert s * s / (4 * WINDOW * NUM_TOKENS) == int(numerator) / int(denominator or 1)
        for boundary in re.findall(r"\d[\d,]*\d", boundaries):
            assert number(boundary) & -number(boundary) == s


def test_the_example_by_hand_is_what_the_engine_does() -> None:
    blocks = [int(cell) for cell in re.findall(r"^\|.* \| (\d+) \|$", example(), re.M)]
    manager = new_manager(Policy(retention="adaptive"))
    assert serve(manager, "A", 0) == 0
    first = report(manager)
    assert first.tail_blocks == sum(blocks)
    says(f"{first.tail_blocks} of the 256 window blocks")
    says(f"{first.full_blocks + first.tail_blocks} blocks are cached, and {first.empty_blocks}")
    assert serve(manager, "B", 10_000) == 0
    second = report(manager)
    says(f"{second.evicted_tail_blocks} tail blocks")
    says(f"Then {second.evicted_full_blocks} full blocks go")
    says(f"So {second.evicted_tail_blocks + second.evicted_full_blocks} cached blocks are evicted")
    says(f"{first.full_blocks - second.evicted_full_blocks} are left")
    says(f"So {serve(manager, 'A again', 0):,} tokens are hit")


@pytest.mark.parametrize("policy", [Policy(retention_interval=None), Policy(retention_interval=0)])
def test_vllms_order_hits_nothing_in_the_example_by_hand(policy: Policy) -> None:
    manager = new_manager(policy)
    assert [serve(manager, name, first) for name, first in (("A", 0), ("B", 10_000))] == [0, 0]
    assert serve(manager, "A again", 0) == 0


def example() -> str:
    text = RETENTION.read_text(encoding="utf-8")
    return text[text.index("## An example by hand") : text.index("## What it does")]


def says(sentence: str) -> None:
    assert sentence in " ".join(example().split())


def number(text: str) -> int:
    return int(text.replace(",", ""))


def new_manager(policy: Policy) -> KVCacheManager:
    groups = [
        KVCacheGroupSpec("full_attention", BLOCK_SIZE),
        KVCacheGroupSpec("sliding_window", BLOCK_SIZE, sliding_window=WINDOW),
    ]
    config = KVCacheConfig(num_blocks=NUM_BLOCKS, kv_cache_groups=groups)
    return KVCacheManager(config, max_model_len=2 * NUM_TOKENS, policy=policy)


def report(manager: KVCacheManager) -> RetentionReport:
    found = manager.retention_report()
    assert found is not None
    return found


def serve(manager: KVCacheManager, name: str, first_token: int) -> int:
    """Serve a prompt and one generated token. Return how many tokens are hit."""
    tokens = list(range(first_token, first_token + NUM_TOKENS))
    request = Request(name, tokens, block_hasher=BlockHasher(BLOCK_SIZE))
    hit, num_hit, request.shared_prefix_boundary = manager.get_computed_blocks(request)
    assert manager.allocate_slots(request, NUM_TOKENS - num_hit, num_hit, hit) is not None
    request.num_computed_tokens = NUM_TOKENS
    request.append_output_token_ids(0)
    assert manager.allocate_slots(request, 1) is not None
    request.num_computed_tokens += 1
    manager.free(request)
    return num_hit
