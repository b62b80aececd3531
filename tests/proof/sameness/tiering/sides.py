"""vLLM's manager of tiers over both primary tiers, and its state."""

import inspect
from typing import Any

from kvoxide.vllm.offload import primary_class
from vllm.v1.kv_offload.tiering.manager import (
    CPUPrimaryTierOffloadingManager,
    TieringOffloadingManager,
)

from ..host.sides import Side, State, state_of
from .scenario import TieringScenario
from .tiers import Region, ScriptedTier

_TAKES_INTERVAL = (
    "tier_poll_interval_s" in inspect.signature(TieringOffloadingManager.__init__).parameters
)


class TieringSide(Side):
    """vLLM's manager of a primary tier and of scripted tiers. No thread polls them."""

    def __init__(self, scenario: TieringScenario, primary: Any) -> None:
        made = primary(mmap_region=Region(scenario.num_chunks), **scenario.arguments())
        view = made.get_kv_memoryview()
        self.tiers = [ScriptedTier(scenario, place, view) for place in range(scenario.num_tiers)]
        options = {"tier_poll_interval_s": 0.0} if _TAKES_INTERVAL else {}
        super().__init__(TieringOffloadingManager(made, list(self.tiers), **options), made)

    def add_request(self, request: int, req_id: str) -> None:
        super().add_request(request, f"request-{request}")  # no two requests with one name

    def state(self) -> State:
        manager = self.manager
        jobs = [
            (job.tier_idx, _shown(job.transfer_job), job.transfer_job.req_context.req_id)
            for job in manager._jobs.values()
        ]
        promotions = [
            (place, name, pending.keys, list(map(int, pending.chunk_ids)))
            for place, of_tier in manager._pending_load_submissions.items()
            for name, pending in of_tier.items()
        ]
        requests = {
            name: (
                state.pending_primary_stores,
                state.is_finished,
                state.request_level_tiers,
                list(getattr(state, "pending_cascade_keys", ())),
            )
            for name, state in manager._req_state.items()
        }
        return state_of(self.primary) | {
            "jobs": jobs,
            "promotions": promotions,
            "requests": requests,
            "sources": getattr(manager, "_request_load_sources", None),
            "has work": manager.has_pending_work(),
            "pressure": [tier.bp_detector and tier.bp_detector.stats for tier in self.tiers],
            "calls of tiers": [_taken(tier.journal) for tier in self.tiers],
        }


def _shown(job: Any) -> tuple[Any, ...]:
    return job.job_id, list(job.keys), job.chunk_ids.tolist(), job.is_promotion


def _taken(journal: list[Any]) -> list[Any]:
    noted = journal[:]
    journal.clear()
    return noted


class VllmTieringSide(TieringSide):
    def __init__(self, scenario: TieringScenario) -> None:
        super().__init__(scenario, CPUPrimaryTierOffloadingManager)


class KvoxideTieringSide(TieringSide):
    def __init__(self, scenario: TieringScenario) -> None:
        super().__init__(scenario, primary_class())
