"""KV cache groups written as text."""

import pytest
from kvoxide._core import ConfigError, KVCacheGroupSpec, UnsupportedGroupError
from kvoxide.lab.replay.input import PRESETS, parse_groups, preset_groups

Shown = tuple[str, int, int | None, int | None]


def shown(specs: tuple[KVCacheGroupSpec, ...]) -> list[Shown]:
    return [(s.kind, s.block_size, s.sliding_window, s.attention_chunk_size) for s in specs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("full:16", [("full_attention", 16, None, None)]),
        ("mla:64", [("mla_attention", 64, None, None)]),
        ("swa:16:1024", [("sliding_window", 16, 1024, None)]),
        ("swa-mla:4:8", [("sliding_window_mla", 4, 8, None)]),
        ("chunked:16:8192", [("chunked_local_attention", 16, None, 8192)]),
        (
            "full:16, swa:16:128*2",
            [("full_attention", 16, None, None), *[("sliding_window", 16, 128, None)] * 2],
        ),
    ],
)
def test_groups_are_read(text: str, expected: list[Shown]) -> None:
    groups = parse_groups(text)
    assert groups.text == text
    assert shown(groups.specs) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "kind:block_size"),
        ("full", "kind:block_size"),
        ("full:16,", "kind:block_size"),
        ("full:sixteen", "'full:sixteen'"),
        ("full:-16", "'full:-16'"),
        ("full:16:32", "full has no window"),
        ("swa:16", "swa needs a window"),
        ("full:16*0", "must be from 1 to 256"),
        ("full:16*257", "must be from 1 to 256"),
        ("full:16*200,full:16*200", "more than 256 groups"),
        ("full:0", "'full:0'"),
        ("swa:16:0", "'swa:16:0'"),
        ("full:99999999999999999999999", "'full:999"),
    ],
)
def test_a_refusal_names_the_part_at_fault(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_groups(text)
    assert said in str(refused.value)


def test_an_unknown_kind_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedGroupError, match=r"'hisparse'.*full, mla, hidden, swa, swa-mla"):
        parse_groups("full:16,hisparse:16")


def test_optional_sizes_and_groups_that_are_not_cached() -> None:
    text = "mamba:528:num_speculative_blocks=2:num_prefill_checkpoint_blocks=1*2"
    (states, _) = parse_groups(text).specs
    assert (states.kind, states.block_size) == ("mamba", 528)
    assert states.sizes == {"num_speculative_blocks": 2, "num_prefill_checkpoint_blocks": 1}
    assert states.prefix_cacheable
    (window,) = parse_groups("swa-mla:32:128:uncached").specs
    assert (window.sliding_window, window.prefix_cacheable) == (128, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mamba:528:544", "mamba has no window"),
        ("mamba:528:blocks=1", "mamba has no 'blocks=1'; it can have num_speculative_blocks"),
        ("swa:16:8:uncached", "takes no prefix_cacheable=False"),
        ("mamba:528:num_speculative_blocks=", "cannot read the group"),
    ],
)
def test_options_that_a_kind_does_not_have(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_groups(text)
    assert said in str(refused.value)


def test_presets() -> None:
    windows = {
        name: [(s.block_size, s.sliding_window) for s in preset_groups(name).specs]
        for name in PRESETS
    }
    assert windows == {
        "llama": [(16, None)],
        "gemma-3": [(16, None), *[(16, 1024)] * 5],
        "gpt-oss": [(16, None), (16, 128)],
        "deepseek-v4": [(256, None), (64, 128), (4, 8), (8, 128)],
        "deepseek-v4.1": [(256, None), (32, 128), (8, None)],
        "qwen3-next": [*[(544, None)] * 3, (544, None)],
        "nemotron-h": [*[(1040, None)] * 6, (1040, None)],
        "kimi-linear": [*[(1920, None)] * 3, (1920, None)],
    }


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'qwen'.*llama"):
        preset_groups("qwen")
