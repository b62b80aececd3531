"""vLLM's own scheduler over a small pool, and workers whose tokens count up."""

import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kvoxide.lab.verify.schedulers.configuration import make_vllm_config
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tests.testing.small_world import BLOCK_SIZE, MAX_MODEL_LEN, config, full


def plan(**changes: Any) -> Any:
    scenario = {
        "enable_caching": True,
        "enable_events": False,
        "num_blocks": 100,
        "scheduler_block_size": BLOCK_SIZE,
        "state_groups": [],
        "shared_prefix_checkpoint": False,
        "max_model_len": MAX_MODEL_LEN,
        "num_prefill_lookahead": 0,
        "num_hash_lookahead_tokens": 0,
        "dcp_world_size": 1,
        "use_eagle": False,
        "watermark": 0.0,
    }
    settings = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "long_prefill_token_threshold": 0,
        "policy": "fcfs",
        "reserves_full_input": False,
        "is_async": False,
        "num_steps_ahead": 1,
        "num_spec_tokens": 0,
        "num_lookahead_tokens": 0,
        "drafts_with_cache": False,
        "uses_v2_runner": False,
        "connector": None,
    }
    scenario |= {name: changes.pop(name) for name in scenario.keys() & changes.keys()}
    settings |= changes
    return SimpleNamespace(scenario=SimpleNamespace(**scenario), **settings)


class SchedulerWorld:
    """A scheduler. The tokens of its steps count up from 1,000,000, over all requests together."""

    def __init__(
        self,
        *specs: Any,
        scheduler_class: type | None = None,
        hash_block_size: int = BLOCK_SIZE,
        interval: int | None = None,
        connector: Any = None,
        **changes: Any,
    ) -> None:
        """Construct a scheduler with these groups. ``changes`` are values of :func:`plan`."""
        made = plan(connector=connector, **changes)
        pool = config(*(specs or (full(),)), num_blocks=made.scenario.num_blocks, interval=interval)
        scheduler_class = scheduler_class or (AsyncScheduler if made.is_async else Scheduler)
        connectors = mock.Mock(create_connector=lambda **_: connector)
        with (
            mock.patch.object(scheduler_module, "EventPublisherFactory", mock.Mock()),
            mock.patch.object(scheduler_module, "KVConnectorFactory", connectors),
        ):
            self.scheduler: Any = scheduler_class(
                vllm_config=make_vllm_config(made),
                kv_cache_config=pool,
                structured_output_manager=mock.Mock(),
                block_size=made.scenario.scheduler_block_size,
                hash_block_size=hash_block_size,
                log_stats=True,
            )
        self.hits = 0
        self._hasher = get_request_block_hasher(hash_block_size, sha256_cbor)
        self._tokens = itertools.count(1_000_000)

    def add(
        self,
        name: str,
        tokens: list[int],
        max_tokens: int,
        *,
        salt: str | None = None,
        adapter: str | None = None,
        extra: dict[str, Any] | None = None,
        prompt_logprobs: int | None = None,
        priority: int = 0,
    ) -> Any:
        """Add a request, and return it."""
        lora = LoRARequest(lora_name=adapter, lora_int_id=1, lora_path="/a") if adapter else None
        request = Request(
            name,
            tokens,
            SamplingParams(
                max_tokens=max_tokens, extra_args=extra, prompt_logprobs=prompt_logprobs
            ),
            None,
            cache_salt=salt,
            lora_request=lora,
            priority=priority,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        return request

    def abort(self, name: str) -> None:
        """Abort a request, as when its client went away."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self, loaded: Iterable[str] = ()) -> Any:
        """Make a step, and return its output. Each request that is computed to its end yields a
        token. The connector's loads for the requests ``loaded`` have then completed."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        requests = [self.scheduler.requests[name] for name in names]
        sampled = [[] if r.is_prefill_chunk else [next(self._tokens)] for r in requests]
        done = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=KVConnectorOutput(finished_recving=set(loaded)),
        )
        outputs = self.scheduler.update_from_output(output, done)
        for each in outputs.values():
            if each.scheduler_stats is not None:
                self.hits += each.scheduler_stats.prefix_cache_stats.hits
        return output

    def run(self) -> None:
        """Make steps until nothing is left to do."""
        while self.scheduler.has_unfinished_requests():
            self.step()

    def serve(self, name: str, tokens: list[int], max_tokens: int, **options: Any) -> list[int]:
        """Serve a request from its arrival to its end, and return all of its tokens."""
        request = self.add(name, tokens, max_tokens, **options)
        self.run()
        return list(request.all_token_ids)
