"""Jobs where GPU and CPU memory decide together, with the policy ``adaptive``.

Blocks are stored before the GPU's pool evicts them, in jobs that belong to no request. They replace
all stores of vLLM's connector. Blocks that a step takes before they are stored are stored before it
runs, as vLLM stores blocks of a request that has ended.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import TransferJob
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import TransferJobStatus
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

from kvoxide._core_vllm import OffloadLeavingPlan
from kvoxide.vllm.environment.log import log_decides_alone
from kvoxide.vllm.offload import NO_REQUEST
from kvoxide.vllm.offload.attributes import ChunkKeySet
from kvoxide.vllm.offload.jobs import TransferJobs
from kvoxide.vllm.offload.planner import gpu_spec


class LeavingJobs(TransferJobs):
    """Makes the jobs of ``adaptive`` after :meth:`decide_with`, and vLLM's jobs before it."""

    decides_together = False
    """Whether kvoxide's manager of the GPU's pool decides together with the tier."""
    num_asked = 0
    """How many blocks were stored in this step for loads that wait for them."""
    # Loads from before a reset read chunks until the next step begins. What that step stores before
    # it runs must not be written there.
    _was_reset = False

    def decide_with(self, manager: Any) -> None:
        """Let kvoxide's manager of the GPU's pool decide together with the tier, which is empty."""
        self._planner.decide_with(manager.engine)
        self.decides_together = True

    def _still_decides_together(self) -> bool:
        if not self.decides_together:
            return False
        if why := self._planner.end_of_deciding():
            self.decides_together = False
            self._planner.decide_alone()
            log_decides_alone(why)
        return self.decides_together

    def _build_partial_tail_store_jobs(self, scheduler_output: Any) -> dict[int, TransferJob]:
        if self.decides_together:
            return {}
        jobs: dict[int, TransferJob] = super()._build_partial_tail_store_jobs(scheduler_output)
        return jobs

    def _build_store_jobs(self, scheduler_output: Any) -> dict[int, TransferJob]:
        decides_together = self._still_decides_together()
        for job_id, plan in list(self._planner.open_stores.items()):
            if not decides_together or self._planner.is_overwritten(plan):
                self._wait_for(job_id)
        if not decides_together:
            return super()._build_store_jobs(scheduler_output)
        has_ended = bool(scheduler_output.finished_req_ids)
        has_tokens = scheduler_output.total_num_scheduled_tokens > 0
        taken, later, self.num_asked = self._planner.store_leaving(
            has_tokens, has_ended, not self._was_reset
        )
        self._was_reset = False
        jobs: dict[int, TransferJob] = {}
        if taken is not None:
            # The step writes into these blocks.
            self._wait_for(self._add_store(taken, jobs))
        if later is not None:
            self._add_store(later, jobs)
        return jobs

    def _add_store(self, plan: OffloadLeavingPlan, jobs: dict[int, TransferJob]) -> int:
        job_id: int = self._generate_job_id()
        self._planner.open_stores[job_id] = plan
        self._jobs[job_id] = TransferJobStatus(
            req_id=NO_REQUEST,
            pending_count=self.config.num_workers,
            keys=ChunkKeySet(plan),
            is_store=True,
        )
        source = gpu_spec(plan.block_ids, plan.group_sizes, [0] * len(plan.group_sizes))
        jobs[job_id] = TransferJob(NO_REQUEST, source, CPULoadStoreSpec(plan.chunk_ids))
        return job_id

    def _wait_for(self, job_id: int) -> None:
        """Let this step wait for a store, because it writes into the blocks."""
        del self._planner.open_stores[job_id]
        self._current_batch_jobs_to_flush.add(job_id)

    def update_connector_output(self, connector_output: Any) -> None:
        """Note which jobs have ended. vLLM's method handles the jobs of requests."""
        meta = connector_output.kv_connector_worker_meta
        if completed := getattr(meta, "completed_jobs", None):
            for job_id in list(completed):
                job = self._jobs.get(job_id)
                if job is not None and job.req_id == NO_REQUEST:
                    self._end_store(job_id, job, completed.pop(job_id))
        super().update_connector_output(connector_output)

    def _end_store(self, job_id: int, job: TransferJobStatus, num_workers: int) -> None:
        job.pending_count -= num_workers
        if job.pending_count > 0:
            return
        self.manager.complete_store(job.keys, None)
        self._planner.open_stores.pop(job_id, None)
        del self._jobs[job_id]

    def reset_cache(self) -> None:
        """Reset the tier, as vLLM does."""
        super().reset_cache()
        self._planner.open_stores.clear()
        if self.decides_together:
            self._was_reset = True
            self._planner.forget_stores()
