"""Workers whose transfers take some time, end in any order, and copy the content of the blocks."""

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.outputs import KVConnectorOutput

from .memory import Content, Group, Memory, Tables, Text, WrongBytesError
from .scenario import Scenario

_STEPS = (0, 0, 1, 2, 6, 20)


@dataclass
class _Transfer:
    last_step: int
    move: Callable[[], None] | None

    def finish(self) -> None:
        if self.move is not None:
            self.move()
            self.move = None


class MadeWorker(OffloadingWorker):  # type: ignore[misc]
    """Moves chunks between a GPU and its host memory, when a job is submitted or when it ends."""

    def __init__(self, scenario: Scenario, name: str, memory: Memory) -> None:
        self._seed = f"{scenario.seed} {name}"
        self._memory = memory
        self._blocks_per_chunk = scenario.extra.get("blocks_per_chunk", 1)
        self._host: dict[int, list[Content]] = {}
        self._transfers: dict[int, _Transfer] = {}
        self._ended: list[int] = []
        self.wanted: dict[int, tuple[Text, int, Sequence[list[int]]]] = {}
        self.step = 0

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._submit(job_id, partial(self._store, src_spec, dst_spec))

    def submit_load(
        self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False
    ) -> bool:
        return self._submit(job_id, partial(self._load, job_id, src_spec, dst_spec))

    def _submit(self, job_id: int, move: Callable[[], None]) -> bool:
        rng = random.Random(f"{self._seed} {job_id}")
        transfer = _Transfer(self.step + rng.choice(_STEPS), move)
        if rng.random() < 0.5:
            transfer.finish()
        self._transfers[job_id] = transfer
        return True

    def wait(self, job_ids: set[int]) -> None:
        for job_id in sorted(job_ids & self._transfers.keys()):
            self._end(job_id)

    def get_finished(self) -> list[TransferResult]:
        due = [job for job, each in self._transfers.items() if each.last_step <= self.step]
        random.Random(f"{self._seed} {self.step}").shuffle(due)
        for job_id in due:
            self._end(job_id)
        ended, self._ended = self._ended, []
        return [TransferResult(job_id, success=True) for job_id in ended]

    def _end(self, job_id: int) -> None:
        self._transfers.pop(job_id).finish()
        self._ended.append(job_id)

    def _store(self, blocks: Any, chunks: Any) -> None:
        for _, _, block_id, chunk, place in self._places(blocks, chunks):
            parts = self._host.setdefault(chunk, [[] for _ in range(self._blocks_per_chunk)])
            parts[place] = list(self._memory.blocks.get(block_id, ()))

    def _load(self, job_id: int, chunks: Any, blocks: Any) -> None:
        text, num_tokens, tables = self.wanted.pop(job_id)
        chain = text.up_to(num_tokens)
        last: dict[int, int] = {}
        for at_group, _, block_id, chunk, place in self._places(blocks, chunks):
            self._memory.blocks[block_id] = list(self._host.get(chunk, [[]] * (place + 1))[place])
            group, table = self._memory.groups[at_group], tables[at_group]
            at = table.index(block_id)
            if at <= last.get(at_group, -1):
                raise WrongBytesError(f"block {block_id} is loaded out of order")
            last[at_group] = at
            tokens = range(at * group.size, min((at + 1) * group.size, num_tokens))
            self._memory.check_blocks(group, {at: block_id}, chain, tokens)

    def _places(self, blocks: Any, chunks: Any) -> Any:
        """Yield each block with its group, its position in the request, its chunk and its position
        there."""
        size = self._blocks_per_chunk
        block_ids, chunk_ids = iter(blocks.block_ids.tolist()), iter(chunks.block_ids.tolist())
        groups = zip(blocks.group_sizes, blocks.block_indices, strict=True)
        for group, (num_blocks, first) in enumerate(groups):
            chunk = None
            for at in range(first, first + num_blocks):
                if chunk is None or at % size == 0:
                    chunk = next(chunk_ids)
                yield group, at, next(block_ids), chunk, at % size
        if next(block_ids, None) is not None or next(chunk_ids, None) is not None:
            raise WrongBytesError("a job has more blocks or chunks than its groups say")


class Rank:
    """One GPU, and vLLM's own worker side of the connector over it."""

    def __init__(self, scenario: Scenario, number: int, config: Any, cache: Any) -> None:
        groups = [
            Group(i, group.kv_cache_spec, scenario.dcp)
            for i, group in enumerate(cache.kv_cache_groups)
        ]
        self.memory = Memory(groups)
        self._number = number
        self._connector = KVConnectorFactory.create_connector(
            config=config, role=KVConnectorRole.WORKER, kv_cache_config=cache
        )
        children = getattr(self._connector, "_connectors", [self._connector])
        self.workers = [
            MadeWorker(scenario, f"{number} {child}", self.memory) for child in range(len(children))
        ]
        for child, worker in zip(children, self.workers, strict=True):
            child.connector_worker.worker = worker

    def run(
        self, output: Any, metadata: Any, step: int, forward: Callable[[Memory], None]
    ) -> KVConnectorOutput:
        """Do the work of a step, in the order of vLLM's model runner."""
        for worker in self.workers:
            worker.step = step
        connector = self._connector
        connector.handle_preemptions(metadata)
        for block_id in output.new_block_ids_to_zero or ():
            self.memory.blocks.pop(block_id, None)
        for block in output.kv_cache_block_copies or ():
            self.memory.copy(block.src_block_id, block.dst_block_id)
        connector.bind_connector_metadata(metadata)
        if output.has_sync_kv_loads:
            connector.start_load_kv(None)
        forward(self.memory)
        if not output.has_sync_kv_loads:
            connector.start_load_kv(None)
        connector.wait_for_save()
        _, received = connector.get_finished(output.finished_req_ids)
        report = connector.build_connector_worker_meta()
        connector.clear_connector_metadata()
        return KVConnectorOutput(finished_recving=received or None, kv_connector_worker_meta=report)


def metadata_of_ranks(output: Any, num_ranks: int) -> list[Any]:
    """Return the metadata of a step for each rank. They reach other processes as bytes, before any
    rank takes jobs out of them."""
    metadata = output.kv_connector_metadata
    as_bytes = pickle.dumps(metadata) if num_ranks > 1 else b""
    return [metadata, *(pickle.loads(as_bytes) for _ in range(num_ranks - 1))]


@dataclass
class Running:
    """A worker's knowledge of a request."""

    text: Text
    tables: Tables
    num_prompt_tokens: int


class Batch:
    """The requests of all workers, which get the same messages."""

    def __init__(self, text_of: Callable[[Any], Text]) -> None:
        self._text_of = text_of
        self._running: dict[str, Running] = {}

    def take(self, output: Any) -> tuple[Callable[[Memory], None], list[int]]:
        """Note the content of a step. Return its computation, and the next token of each
        request."""
        for name in output.finished_req_ids:
            self._running.pop(name, None)
        begun = {r.req_id: r.num_computed_tokens for r in output.scheduled_new_reqs}
        for new in output.scheduled_new_reqs:
            prompt = new.prompt_token_ids
            tables = [list(ids) for ids in new.block_ids]
            self._running[new.req_id] = Running(self._text_of(prompt), tables, len(prompt))
        cached = output.scheduled_cached_reqs
        computed = dict(begun)
        known = zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True)
        for name, block_ids, num_computed in known:
            computed[name] = num_computed
            tables = self._running[name].tables
            if name in cached.resumed_req_ids:
                begun[name] = num_computed
                tables[:] = [[] for _ in tables]
            for table, ids in zip(tables, block_ids or [()] * len(tables), strict=True):
                table.extend(ids)
        scheduled = output.num_scheduled_tokens
        ends = {name: computed[name] + scheduled[name] for name in scheduled}
        work = partial(self._compute, computed, ends, begun)
        return work, [self._running[name].text.token(end) for name, end in ends.items()]

    def _compute(
        self,
        computed: dict[str, int],
        ends: dict[str, int],
        begun: dict[str, int],
        memory: Memory,
    ) -> None:
        for name, end in ends.items():
            request = self._running[name]
            memory.compute(request.tables, request.text.up_to(end), computed[name], end)
        for name, num_tokens in begun.items():
            request = self._running[name]
            chain = request.text.up_to(num_tokens)
            memory.check(request.tables, chain, num_tokens, request.num_prompt_tokens)
