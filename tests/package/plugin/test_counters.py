import pytest
from kvoxide.vllm.environment import counters


@pytest.fixture(autouse=True)
def _no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_counters", {})
    monkeypatch.setattr(counters, "_gauges", {})


def test_a_counter_adds_up_for_each_set_of_labels() -> None:
    counters.add("kvoxide_fallbacks_total", reason="changed", part="manager")
    counters.add("kvoxide_fallbacks_total", part="manager", reason="changed")
    counters.add("kvoxide_fallbacks_total", 3, part="hasher", reason="changed")
    assert counters.counters() == {
        "kvoxide_fallbacks_total": {
            (("part", "manager"), ("reason", "changed")): 2,
            (("part", "hasher"), ("reason", "changed")): 3,
        }
    }


def test_a_gauge_has_its_last_value_and_readers_get_copies() -> None:
    counters.set_gauge("kvoxide_poisoned", 0)
    read = counters.gauges()
    counters.set_gauge("kvoxide_poisoned", 1)
    assert read == {"kvoxide_poisoned": {(): 0}}
    assert counters.gauges() == {"kvoxide_poisoned": {(): 1}}
