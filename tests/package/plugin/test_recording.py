"""How many calls a recorder keeps, without vLLM."""

import pytest
from kvoxide.vllm.shadow.recorder import DEFAULT_MAX_CALLS, max_calls


@pytest.mark.parametrize(
    ("value", "calls"),
    [
        ("2000", 2000),
        ("", DEFAULT_MAX_CALLS),
        ("0", DEFAULT_MAX_CALLS),
        ("-1", DEFAULT_MAX_CALLS),
        ("many", DEFAULT_MAX_CALLS),
        ("²", DEFAULT_MAX_CALLS),
        ("9" * 5000, DEFAULT_MAX_CALLS),
    ],
)
def test_what_is_no_number_of_calls_is_the_default(
    value: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_SHADOW_CALLS", value)
    assert max_calls() == calls
