"""Tests of replays with CPU memory: against a small model, over time, in tables and files."""

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from kvoxide import (
    HostMemory,
    KVCacheGroupSpec,
    Policy,
    Serving,
    Simulation,
    SimulationResult,
    StepTime,
    Trace,
)

from tests.testing.traces import replay_json, succeed

BLOCK = 4


def chats(
    seed: int, num: int = 120, *, conversations: int = 12, longest: int = 100
) -> list[list[int]]:
    """Return prompts that continue one of some conversations."""
    rng = random.Random(seed)
    texts: list[list[int]] = [[] for _ in range(conversations)]
    prompts, token = [], 0
    for _ in range(num):
        text = rng.choice(texts)
        if len(text) > longest:
            text.clear()
        length = rng.randint(3, 30)
        text.extend(range(token, token + length))
        token += length
        prompts.append(list(text))
    return prompts


def trace_of(prompts: list[list[int]], *, outputs: int = 1) -> Trace:
    trace = Trace()
    for number, prompt in enumerate(prompts):
        trace.push_prompt(prompt, outputs, arrival=float(number))
    return trace


def run(
    trace: Trace, memory: HostMemory | None, blocks: int = 60, **options: Any
) -> SimulationResult:
    groups = options.pop("groups", [KVCacheGroupSpec("full_attention", BLOCK)])
    options = {"concurrency": 1, **options}
    return Simulation(trace, groups, blocks, host_memory=memory, **options).run()


class Lru:
    """CPU memory for one request at a time, as a list of the prefixes that it has, the first to go
    first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.prefixes: list[tuple[int, ...]] = []
        self.before: list[tuple[int, ...]] = []
        self.num_stored = 0
        self.num_loaded = 0

    def serve(self, prompt: list[int], local: int) -> int:
        """Serve a prompt, whose first ``local`` tokens the GPU has. Return how many are loaded."""
        whole = [tuple(prompt[:end]) for end in range(BLOCK, len(prompt) + 1, BLOCK)]
        first = end = local // BLOCK
        while end < len(whole) and whole[end] in self.prefixes:
            end += 1
        # After a load, what the GPU had is not offered again.
        used = whole[first:] if end > first else whole
        offered = whole[end:] if end > first else whole
        new = [prefix for prefix in offered if prefix not in self.prefixes]
        evictable = [prefix for prefix in self.prefixes if prefix not in offered]
        num_missing = len(self.prefixes) + len(new) - self.capacity
        self.num_loaded += end - first
        loaded = set(whole[first:end])
        evictable.sort(key=lambda prefix: prefix in loaded)
        if num_missing <= len(evictable):
            for prefix in evictable[: max(0, num_missing)]:
                self.prefixes.remove(prefix)
            self.prefixes += new
            self.num_stored += len(new)
        self._use(used)
        # The request before has ended, and its end is a use in this step.
        self._use(self.before)
        self.before = used
        return (end - first) * BLOCK

    def _use(self, prefixes: list[tuple[int, ...]]) -> None:
        kept = [prefix for prefix in reversed(prefixes) if prefix in self.prefixes]
        self.prefixes = [prefix for prefix in self.prefixes if prefix not in kept] + kept


@pytest.mark.parametrize("capacity", [40, 80, 200, 1_000])
def test_an_independent_lru_stores_and_loads_the_same(capacity: int) -> None:
    prompts = chats(capacity)
    result = run(trace_of(prompts), HostMemory(capacity, 4096))
    lru = Lru(capacity)
    hits, loaded = result.per_request[:, 2], result.loaded_per_request
    expected = [
        lru.serve(prompt, int(hit - load))
        for prompt, hit, load in zip(prompts, hits, loaded, strict=True)
    ]
    assert expected == loaded.tolist()
    counts = result.host_memory
    assert counts is not None
    assert (counts.stored_chunks, counts.loaded_chunks) == (lru.num_stored, lru.num_loaded)
    assert counts.stored_chunks > 0
    if capacity > 40:
        assert counts.loaded_chunks > 0


def test_more_is_hit_than_without_and_less_than_in_one_pool() -> None:
    prompts = chats(1)
    without = run(trace_of(prompts), None)
    result = run(trace_of(prompts), HostMemory(200, 4096))
    together = run(trace_of(prompts), None, blocks=260)
    assert without.hit_tokens < result.hit_tokens <= together.hit_tokens
    assert without.loaded_tokens == 0
    assert without.host_memory is None
    assert 0 < result.loaded_tokens < result.hit_tokens
    outcomes = result.outcomes_per_request
    assert outcomes[:, 1].sum() == result.loaded_tokens
    assert (outcomes.sum(axis=1) == result.per_request[:, 0]).all()


@pytest.mark.parametrize("policy", ["lru", "arc", "adaptive"])
def test_windows_and_states_come_back_with_their_prefix(policy: Any) -> None:
    prompts = chats(2, 200)
    groups = [
        KVCacheGroupSpec("full_attention", BLOCK),
        KVCacheGroupSpec("sliding_window", BLOCK, sliding_window=6),
    ]
    memory = HostMemory(300, 4096, eviction_policy=policy)
    result = run(trace_of(prompts), memory, groups=groups, blocks=80, concurrency=2)
    counts = result.host_memory
    assert counts is not None
    assert 0 < counts.stored_tail_chunks < counts.stored_chunks
    assert result.loaded_tokens > 0
    states = [KVCacheGroupSpec("mamba", 8), KVCacheGroupSpec("full_attention", 8)]
    result = run(trace_of(prompts), memory, groups=states, blocks=80)
    assert result.loaded_tokens > 0


def test_prefixes_without_a_window_in_either_memory_are_counted() -> None:
    """Only the window at the end of each prompt is stored. Fillers evict all others from the
    pool."""
    groups = [
        KVCacheGroupSpec("full_attention", BLOCK),
        KVCacheGroupSpec("sliding_window", BLOCK, sliding_window=6),
    ]
    first, second = list(range(42)), list(range(82))
    fillers = [list(range(start, start + 100)) for start in (1_000, 2_000, 3_000, 4_000)]
    policy = Policy(retention_interval=0)

    def counted(*prompts: list[int]) -> tuple[int, int]:
        memory = HostMemory(1_000, 4096)
        result = run(trace_of(list(prompts)), memory, groups=groups, blocks=70, policy=policy)
        assert result.host_memory is not None
        return result.hit_tokens, result.host_memory.without_tail_tokens

    assert counted(first, *fillers, [*first, 900]) == (40, 0)
    # Five whole blocks of the first prompt, without a window at their end.
    assert counted(first, *fillers, [*first[:22], *range(500, 530)]) == (0, 20)
    # The window at the end of the first prompt, and five blocks after it.
    both = (first, second, *fillers)
    assert counted(*both, [*second[:62], *range(500, 530)]) == (40 + 40, 20)


@pytest.mark.parametrize("serving", [None, Serving(speed=50.0)])
def test_memory_under_adaptive_holds_what_the_pool_lacks(serving: Serving | None) -> None:
    groups = [
        KVCacheGroupSpec("full_attention", BLOCK),
        KVCacheGroupSpec("sliding_window", BLOCK, sliding_window=6),
    ]
    settings: dict[str, Any] = {
        "groups": groups,
        "policy": Policy(retention="adaptive"),
        "concurrency": 2,
        "serving": serving,
    }

    def hits(memory: HostMemory | None, blocks: int) -> tuple[int, float]:
        tokens, held_twice = 0, 0.0
        for seed in (7, 8, 9):
            trace = trace_of(chats(seed, 600, conversations=50, longest=50), outputs=3)
            result = run(trace, memory, blocks=blocks, **settings)
            assert result.rejected_requests == 0
            tokens += result.hit_tokens
            if result.host_memory is not None:
                held_twice += result.host_memory.held_twice_share or 0.0
        return tokens, held_twice

    lru, twice_lru = hits(HostMemory(300, 4096), 300)
    adaptive, twice = hits(HostMemory(300, 4096, eviction_policy="adaptive"), 300)
    one_pool, _ = hits(None, 600)
    assert 1.05 * lru < adaptive <= one_pool
    assert 0 < twice < twice_lru / 2


@pytest.mark.parametrize(("blocks", "chunks"), [(1000, 4000), (3000, 3000), (4000, 1000)])
def test_what_lru_would_have_hit_in_both_memories_is_estimated(blocks: int, chunks: int) -> None:
    """Some prompts come back soon, and all of them come back in another order."""
    order = [number % 100 for number in range(800)]
    random.Random(3).shuffle(order)
    trace = trace_of([list(range(at * 1000, at * 1000 + 65 * BLOCK)) for at in order])
    memories = [HostMemory(chunks, 4096, eviction_policy=policy) for policy in ("adaptive", "lru")]
    policies = [Policy(retention="adaptive"), Policy()]
    adaptive, default = (
        run(trace, memory, blocks=blocks, policy=policy)
        for memory, policy in zip(memories, policies, strict=True)
    )
    assert adaptive.default_hit_tokens is not None
    assert default.hit_tokens < adaptive.hit_tokens
    error = (adaptive.default_hit_tokens - default.hit_tokens) / default.prompt_tokens
    # Pool and CPU memory lose other blocks of a prompt, so they have more than each of them alone.
    assert (-0.05 if blocks != chunks else -0.12) < error < 0.03


def test_a_slow_link_makes_requests_wait() -> None:
    trace = trace_of(chats(3), outputs=3)
    serving = Serving(speed=100.0, step_time=StepTime(base=1e-3, prefill=1e-5))

    def first_token(bandwidth: float) -> float:
        memory = HostMemory(400, 1 << 20, load_bandwidth=bandwidth, load_latency=0.0)
        result = run(trace, memory, serving=serving, concurrency=8)
        assert result.rejected_requests == 0
        assert result.loaded_tokens > 0
        assert result.serving is not None
        latencies = result.serving.total.time_to_first_token
        assert latencies is not None
        return latencies[1]

    assert first_token(1e12) < first_token(2e8) < first_token(2e7)


def test_an_offer_without_room_is_repeated_until_there_is_room() -> None:
    prompts = [list(range(24)), list(range(100, 124))]
    serving = Serving(
        speed=1.0, step_time=StepTime(base=1e-3, prefill=0.0, context=0.0, running=0.0)
    )

    def counts(num_chunks: int, store_latency: float) -> tuple[int, int]:
        memory = HostMemory(num_chunks, 4096, store_latency=store_latency)
        trace = Trace()
        for prompt in prompts:
            trace.push_prompt(prompt, 50, arrival=0.0)
        result = run(trace, memory, serving=serving, concurrency=2)
        assert result.host_memory is not None
        return result.host_memory.stored_chunks, result.host_memory.refused_offers

    assert counts(12, 0.0) == (12, 0)
    # The store of the first prompt ends after 20 to 22 steps. In each of them, the second prompt is
    # offered.
    num_stored, num_refused = counts(8, 20e-3)
    assert num_stored == 12
    assert 20 <= num_refused <= 22
    # Neither prompt fits. Each is offered in its 51 steps, and once more when it has ended.
    assert counts(5, 0.0) == (0, 2 * 52)


def test_instances_have_memory_of_their_own() -> None:
    trace = trace_of(chats(4), outputs=2)
    memory = HostMemory(100, 4096)
    result = run(trace, memory, serving=Serving(speed=10.0, instances=3, router="session"))
    assert result.host_memory is not None
    assert result.host_memory.num_chunks == 300
    assert result.requests == 120


def test_memory_and_results_can_be_pickled() -> None:
    memory = HostMemory(9, 4096, eviction_policy="arc", store_threshold=2, load_latency=0.5)
    assert pickle.loads(pickle.dumps(memory)) == memory
    result = run(trace_of(chats(5)), HostMemory(100, 4096))
    restored: SimulationResult = pickle.loads(pickle.dumps(result))
    assert restored.loaded_tokens == result.loaded_tokens
    assert restored.host_memory is not None
    assert result.host_memory is not None
    assert restored.host_memory.stored_chunks == result.host_memory.stored_chunks


def written(tmp_path: Path, *, outputs: int = 2) -> Path:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"prompt_token_ids": prompt, "output_length": outputs, "timestamp": 9 * at}
        for at, prompt in enumerate(chats(6))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


OPTIONS = ("--groups", f"full:{BLOCK}", "--blocks", "80", "--concurrency", "2")


def test_the_file_has_a_result_for_each_size(tmp_path: Path) -> None:
    record = replay_json(
        tmp_path, written(tmp_path), *OPTIONS, "--host-blocks", "0,50,300", "--bound",
        "--eviction-policy", "lru", "--eviction-policy", "arc",
    )  # fmt: skip
    names = [(r["policy"], r.get("host_memory", {}).get("name")) for r in record["results"]]
    assert names == [
        ("vllm", None),
        *[("vllm", f"{size} blocks {policy}") for size in (50, 300) for policy in ("lru", "arc")],
        ("vllm", "50 blocks"),
        ("vllm", "300 blocks"),
        ("clairvoyant", None),
        ("clairvoyant", "50 blocks"),
        ("clairvoyant", "300 blocks"),
        ("unlimited", None),
    ]
    lru = record["results"][3]
    memory = lru["host_memory"]
    assert memory["loaded_bytes"] == memory["loaded_chunks"] * memory["chunk_bytes"] > 0
    assert memory["loaded_tokens"] / lru["prompt_tokens"] == memory["loaded_share"]
    one_pool = record["results"][6]
    assert one_pool["is_one_pool"]
    assert one_pool["blocks"] == 80 + 300
    assert one_pool["host_memory"].keys() == {"name", "num_chunks", "chunk_bytes"}
    assert one_pool["hit_share"] <= record["results"][9]["hit_share"]
    assert "host_memory" not in record["results"][0]


def test_loads_of_preempted_requests_count_in_bytes_and_in_tokens(tmp_path: Path) -> None:
    record = replay_json(
        tmp_path, written(tmp_path, outputs=30), "--groups", f"full:{BLOCK}", "--blocks", "40",
        "--concurrency", "8", "--host-blocks", "400", "--arrivals", "trace",
    )  # fmt: skip
    result = record["results"][0]
    memory = result["host_memory"]
    assert result["preemptions"] > 0
    assert memory["loaded_chunks"] * BLOCK == memory["all_loaded_tokens"] > memory["loaded_tokens"]
    assert memory["pays_above_bandwidth"] == pytest.approx(memory["chunk_bytes"] / BLOCK / 27e-6)


def test_the_head_says_where_hits_of_windows_can_end(tmp_path: Path) -> None:
    groups = f"full:{BLOCK},swa:{BLOCK}:6"
    output = succeed(
        "replay", written(tmp_path), *OPTIONS, "--groups", groups, "--host-blocks", "50"
    ).output
    assert f"multiples of {BLOCK} tokens, or of all but the last token with CPU memory" in output


def test_settings_without_effect_on_adaptive_are_null(tmp_path: Path) -> None:
    record = replay_json(
        tmp_path, written(tmp_path), *OPTIONS, "--host-blocks", "50", "--eviction-policy", "lru",
        "--eviction-policy", "adaptive",
    )  # fmt: skip
    lru, adaptive = (result["host_memory"] for result in record["results"][:2])
    assert (lru["store_threshold"], lru["offload_prompt_only"]) == (0, True)
    assert (adaptive["store_threshold"], adaptive["offload_prompt_only"]) == (None, None)


def test_without_memory_nothing_else_is_written(tmp_path: Path) -> None:
    trace = written(tmp_path)
    plain = replay_json(tmp_path, trace, *OPTIONS)
    none = replay_json(tmp_path, trace, *OPTIONS, "--host-blocks", "0")
    for each in (plain, none):
        each.pop("timing")
        for result in each["results"]:
            for name in ("wall_seconds", "schedule_seconds", "step_seconds"):
                result.pop(name)
    assert plain == none


def test_the_tables_say_what_the_memory_brings(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    output = succeed(
        "replay", written(tmp_path), *OPTIONS, "--host-blocks", "50,300", "--arrivals", "trace",
        "--per-request", lines, "--eviction-policy", "lru", "--eviction-policy", "adaptive",
    ).output  # fmt: skip
    assert "CPU memory" in output
    assert "vllm, one pool including 300 blocks" in output
    assert f"hits in multiples of {BLOCK} tokens; pool" in output
    assert "vllm + 50 blocks lru: CPU memory has 50 blocks, fewer than the pool" in output
    assert "vllm + 50 blocks adaptive: CPU memory has 50 blocks" not in output
    assert "a load takes less time than computing the same tokens above" in output
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    loaded = [r["loaded_tokens"] for r in records if r.get("host_memory") == "300 blocks lru"]
    assert sum(each or 0 for each in loaded) > 0
