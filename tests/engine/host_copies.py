"""The worker of vLLM's CPU offloading for an engine without an accelerator.

vLLM's own worker copies between a GPU and pinned memory, and refuses to start without a GPU. This
one copies between two tensors of CPU memory. Connector and manager are vLLM's, or kvoxide's. It
counts the blocks of transfers in place of bytes. Set in
``kv_connector_extra_config``: spec_name "HostCopies", spec_module_path "tests.engine.host_copies".
"""

from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

POLLS_UNTIL_DONE = 2
"""A transfer is done at once, but reported as done only at this poll, like one that takes some
steps."""


class HostCopies(CPUOffloadingSpec):  # type: ignore[misc]
    """vLLM's CPU offloading with the worker below."""

    _worker: OffloadingWorker | None

    def get_worker(self, kv_caches: Any) -> OffloadingWorker:
        if self._worker is None:
            assert self.blocks_per_chunk == 1, "a chunk of several blocks is not copied here"
            self._worker = Worker(kv_caches, self.num_chunks)
        return self._worker


class Worker(OffloadingWorker):  # type: ignore[misc]
    """Copies blocks (rows of the engine's tensors) to chunks (rows of tensors created here)."""

    def __init__(self, kv_caches: Any, num_chunks: int) -> None:
        self.layers_of_groups = kv_caches.group_data_refs
        self.blocks = [
            each.tensor.view(torch.int8).view(-1, each.page_size_bytes)
            for each in kv_caches.tensors
        ]
        self.chunks = [
            torch.zeros((num_chunks, blocks.shape[1]), dtype=torch.int8) for blocks in self.blocks
        ]
        self.polls_left: dict[int, int] = {}
        self.num_blocks: dict[int, int] = {}

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        for layer, block, chunk in self._pairs(src_spec, dst_spec):
            self.chunks[layer][chunk] = self.blocks[layer][block]
        self._start(job_id, src_spec)
        return True

    def submit_load(
        self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False
    ) -> bool:
        for layer, block, chunk in self._pairs(dst_spec, src_spec):
            self.blocks[layer][block] = self.chunks[layer][chunk]
        self._start(job_id, dst_spec)
        return True

    def _start(self, job_id: int, on_device: Any) -> None:
        self.polls_left[job_id] = POLLS_UNTIL_DONE
        self.num_blocks[job_id] = len(on_device.block_ids)

    def _pairs(self, on_device: Any, on_host: Any) -> list[tuple[int, Any, Any]]:
        """Return the tensor, its rows of blocks and the rows of chunks, for each layer of each
        group."""
        pairs, begin = [], 0
        for layers, size in zip(self.layers_of_groups, on_device.group_sizes, strict=True):
            rows = slice(begin, begin + size)
            block, chunk = (
                torch.from_numpy(spec.block_ids[rows].astype("int64"))
                for spec in (on_device, on_host)
            )
            pairs += [(layer.tensor_idx, block, chunk) for layer in layers]
            begin += size
        assert begin == len(on_host.block_ids) == len(on_device.block_ids)
        return pairs

    def get_finished(self) -> list[TransferResult]:
        self.polls_left = {job: left - 1 for job, left in self.polls_left.items()}
        done = [job for job, left in self.polls_left.items() if left <= 0]
        for job in done:
            del self.polls_left[job]
        return [
            TransferResult(
                job_id=job,
                success=True,
                transfer_size=self.num_blocks.pop(job),
                transfer_time=1e-6,
            )
            for job in done
        ]

    def wait(self, job_ids: set[int]) -> None:
        self.polls_left |= {job: 0 for job in job_ids if job in self.polls_left}
