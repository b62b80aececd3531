"""Tests of the shadow of vLLM's manager. It is silent while both agree. If they differ, it makes
one report and a file."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from click.testing import CliRunner  # noqa: E402
from kvoxide.cli import main  # noqa: E402
from kvoxide.vllm import adapter  # noqa: E402
from kvoxide.vllm.environment import counters  # noqa: E402
from kvoxide.vllm.shadow import (  # noqa: E402
    Recording,
    RecordingError,
    agreement,
    engine_alone,
    in_vllm,
    replay,
    stock_in_vllm,
)
from kvoxide.vllm.shadow.shadow import ShadowManager  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager as Stock  # noqa: E402

from tests.testing.logs import logged  # noqa: E402
from tests.testing.small_world import (  # noqa: E402
    BLOCK_SIZE,
    config,
    full,
    make_manager,
    make_request,
    states,
    traffic,
    window,
)
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

Native: Any = adapter.native_class()


class WrongHitLength(Native):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__.pop("get_computed_blocks", None)

    def get_computed_blocks(self, *args: Any, **kwargs: Any) -> Any:
        blocks, length, boundary = super().get_computed_blocks(*args, **kwargs)
        return blocks, max(0, length - 16) if length > 100 else length, boundary


class WrongQueueOrder(Native):  # type: ignore[misc]
    def free(self, request: Any) -> None:
        self.block_pool.free_blocks(self.pop_blocks_for_free(request))


class WrongEvents(Native):  # type: ignore[misc]
    def take_events(self) -> list[Any]:
        return super().take_events()[:-1]  # type: ignore[no-any-return]


class Raises(Native):  # type: ignore[misc]
    def free(self, request: Any) -> None:
        raise BaseException("a panic")


PLANTED = [
    pytest.param(WrongHitLength, "result", id="hit length"),
    pytest.param(WrongQueueOrder, "result", id="queue order"),
    pytest.param(WrongEvents, "result", id="events"),
    pytest.param(Raises, "shadow", id="exception"),
]


@pytest.fixture(autouse=True)
def _shadow_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")
    monkeypatch.setenv("KVOXIDE_SHADOW_DIR", str(tmp_path))


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """Collect the errors that kvoxide logs."""
    with logged(logging.ERROR) as seen:
        yield seen


def expected() -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVOXIDE", "off")
        manager = make_manager(enable_kv_cache_events=True)
    assert type(manager) is Stock
    return traffic(manager)


def counted(metric: str) -> float:
    """Return a counter of the manager's shadow."""
    return counters.counters()[f"kvoxide_shadow_{metric}_total"][(("part", "manager"),)]


def test_it_says_after_a_minute_and_each_ten_minutes_that_both_agree(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(agreement, "monotonic", lambda: now[0])
    monkeypatch.setattr(counters, "_counters", {})
    manager = make_manager()
    assert counted("calls") == counted("differences") == 0
    for seconds in (59, 2, 500, 90, 20):
        now[0] += seconds
        traffic(manager, num_requests=20)
    said = [line for line in lines if "no difference" in line]
    assert len(said) == 2
    assert said[0].startswith("kvoxide: shadow mode compared ")
    assert said[0].endswith(" calls of the KV cache: no difference.")
    assert 100 < int(said[0].split()[4]) < int(said[1].split()[4]) <= counted("calls")
    assert counted("differences") == 0


def test_it_says_at_shutdown_that_both_agree(lines: list[str]) -> None:
    world = SchedulerWorld()
    world.serve("any", list(range(100)), 20)
    world.scheduler.shutdown()
    num_calls = world.scheduler.kv_cache_manager.shadow.agreement.num_calls
    assert num_calls > 20
    assert lines[-1] == (
        "kvoxide: shadow mode ends with the server. It compared "
        f"{num_calls} calls of the KV cache: no difference."
    )


def test_after_a_difference_it_never_says_that_both_agree(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_counters", {})
    monkeypatch.setattr(adapter, "native_class", lambda: WrongHitLength)
    world = SchedulerWorld()
    world.serve("any", list(range(200)), 20)
    world.serve("again", list(range(200)), 20)
    world.scheduler.shutdown()
    assert counted("differences") == 1
    assert not [line for line in lines if "no difference" in line]


@pytest.mark.parametrize("specs", [(full(),), (full(), window()), (window(),)])
@pytest.mark.parametrize("interval", [None, 0])
@pytest.mark.parametrize("events", [True, False])
def test_both_agree(
    specs: tuple[Any, ...],
    interval: int | None,
    events: bool,
    errors: list[str],
    tmp_path: Path,
) -> None:
    groups = config(*specs, interval=interval)
    manager = make_manager(kv_cache_config=groups, enable_kv_cache_events=events)
    traffic(manager, num_requests=200)
    assert isinstance(manager, ShadowManager)
    assert manager.shadow is not None
    assert len(manager.shadow.recorder) > 200
    assert errors == []
    assert list(tmp_path.iterdir()) == []


class StepsNeverStart(Native):  # type: ignore[misc]
    def new_step_starts(self) -> None:
        pass


def is_orders(entry: Any) -> bool:
    return isinstance(entry, tuple) and isinstance(entry[1], dict)


def test_states_agree_and_replay(errors: list[str], tmp_path: Path) -> None:
    manager = make_manager(full(), states(), scheduler_block_size=3 * BLOCK_SIZE)
    seen = traffic(manager, num_requests=200)
    assert any(copies for copies, _ in filter(is_orders, seen))
    assert manager.shadow is not None, errors
    file = manager.shadow.recorder.write({"what": "result", "call": {}, "vllm": {}, "kvoxide": {}})
    assert "secret" not in file.read_text()
    for right in (in_vllm(Native), stock_in_vllm, engine_alone):
        assert replay(Recording.read(file), right) is None
    assert replay(Recording.read(file), in_vllm(StepsNeverStart)) is not None


@pytest.mark.parametrize(("native", "what"), PLANTED)
def test_planted_error_is_reported_once_and_replays(
    native: type,
    what: str,
    errors: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter, "native_class", lambda: native)
    manager = make_manager(enable_kv_cache_events=True)
    assert traffic(manager) == expected()
    assert manager.shadow is None
    (error,) = errors
    (file,) = tmp_path.iterdir()
    assert f"Place: {what} of " in error
    assert f"kvoxide shadow {file}" in error

    recording = Recording.read(file)
    if native is not Raises:
        finding = replay(recording, in_vllm(native))
        assert finding is not None
        assert finding.index == len(recording.calls) - 1
    for right in (in_vllm(Native), stock_in_vllm, engine_alone):
        assert replay(recording, right) is None


def test_command_says_whether_the_difference_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(adapter, "native_class", lambda: WrongHitLength)
        traffic(make_manager())
        (file,) = tmp_path.iterdir()
        shown = CliRunner().invoke(main, ["shadow", str(file)])
        assert shown.exit_code == 1, shown.output
        assert ": call " in shown.output
    gone = CliRunner().invoke(main, ["shadow", str(file)])
    assert gone.exit_code == 0, gone.output
    assert gone.output.count("calls have vLLM's results") == 3


def test_file_holds_no_tokens_and_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "native_class", lambda: WrongEvents)
    traffic(make_manager(enable_kv_cache_events=True))
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    assert "secret" not in text
    recorded = json.loads(text)
    assert not any(7_000_000 <= number < 8_000_000 for number in _numbers(recorded))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield value


def test_short_ring_says_that_it_cannot_be_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_SHADOW_CALLS", "1000")
    manager = make_manager()
    traffic(manager, num_requests=400)
    assert manager.shadow is not None
    assert manager.shadow.recorder.num_dropped > 0
    file = manager.shadow.recorder.write({"what": "result", "call": {}, "vllm": {}, "kvoxide": {}})
    with pytest.raises(RecordingError, match="KVOXIDE_SHADOW_CALLS"):
        replay(Recording.read(file), stock_in_vllm)


def test_unwritable_folder_is_no_trouble(
    errors: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("KVOXIDE_SHADOW_DIR", str(blocked))
    monkeypatch.setattr(adapter, "native_class", lambda: WrongHitLength)
    traffic(make_manager())
    (error,) = errors
    assert "could not be written" in error


def test_exceptions_of_vllms_manager_are_compared_too(errors: list[str]) -> None:
    manager = make_manager()
    request = make_request(1, list(range(40)))
    with pytest.raises(ValueError, match="num_new_tokens"):
        manager.allocate_slots(request, 0)
    assert manager.shadow is not None
    assert errors == []


def test_metrics_are_counted_once() -> None:
    class Collector:
        allocated = 0

        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

        def on_block_allocated(self, block: object) -> None:
            self.allocated += 1

    collector = Collector()
    manager = make_manager(full(), metrics_collector=collector)
    request = make_request(1, list(range(40)))
    manager.allocate_slots(request, request.num_tokens)
    assert collector.allocated == 3


def test_watched_blocks_are_compared(errors: list[str]) -> None:
    manager = make_manager()
    blocks = manager.block_pool.get_new_blocks(3)
    reused: list[int] = []
    manager.block_pool.unpin_blocks(blocks, lambda block: reused.append(block.block_id))
    manager.block_pool.get_new_blocks(99)
    assert len(reused) == 3
    assert manager.shadow is not None, errors


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 99}'])
def test_wrong_files_are_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(content)
    with pytest.raises(RecordingError, match=r"file\.json"):
        Recording.read(file)
    assert CliRunner().invoke(main, ["shadow", str(file)]).exit_code == 1
