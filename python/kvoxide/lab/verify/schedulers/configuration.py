"""vLLM's configuration, with the values that its scheduler reads.

It has only values, because the real classes need a model's files.
"""

from types import SimpleNamespace
from typing import Any

from kvoxide.lab.verify.schedulers.plan import Plan


def make_vllm_config(plan: Plan) -> Any:
    scenario = plan.scenario
    return SimpleNamespace(
        scheduler_config=_scheduler_config(plan),
        cache_config=_cache_config(plan),
        model_config=model_config(scenario.max_model_len),
        parallel_config=_parallel_config(plan),
        observability_config=_observability_config(),
        speculative_config=_speculative_config(plan) if plan.num_spec_tokens else None,
        kv_transfer_config=_transfer_config() if plan.connector else None,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=scenario.enable_events),
        aux_output_config=SimpleNamespace(enabled=False),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        ec_transfer_config=None,
        lora_config=None,
        num_speculative_tokens=plan.num_spec_tokens,
        num_lookahead_tokens=plan.num_lookahead_tokens,
        num_prefill_lookahead_tokens=scenario.num_prefill_lookahead,
        num_hash_lookahead_tokens=scenario.num_hash_lookahead_tokens,
        max_in_flight_tokens=plan.max_num_batched_tokens * plan.num_steps_ahead,
        max_concurrent_batches=plan.num_steps_ahead,
        use_v2_model_runner=plan.uses_v2_runner,
        is_mm_encoder_only=False,
    )


def _scheduler_config(plan: Plan) -> Any:
    return SimpleNamespace(
        max_num_seqs=plan.max_num_seqs,
        max_num_active_seqs=None,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_num_scheduled_tokens=None,
        long_prefill_token_threshold=plan.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive=False,
        enable_chunked_prefill=True,
        disable_chunked_mm_input=False,
        async_scheduling=plan.is_async,
        prefill_schedule_interval=1,
        scheduler_reserve_full_isl=plan.reserves_full_input,
        watermark=plan.scenario.watermark,
        policy=plan.policy,
    )


def _cache_config(plan: Plan) -> Any:
    scenario = plan.scenario
    states = scenario.state_groups
    return SimpleNamespace(
        enable_prefix_caching=scenario.enable_caching,
        cache_dtype="auto",
        user_specified_block_size=False,
        num_gpu_blocks=scenario.num_blocks,
        block_size=states[0].block_size if states else scenario.scheduler_block_size,
        mamba_cache_mode=states[0].mamba_mode if states else "none",
        enable_mamba_shared_prefix_checkpoint=scenario.shared_prefix_checkpoint,
    )


def model_config(max_model_len: int, **more: Any) -> Any:
    """Return the attributes that vLLM's scheduler reads of a model, and ``more``."""
    return SimpleNamespace(
        max_model_len=max_model_len,
        uses_mrope=False,
        is_encoder_decoder=False,
        is_diffusion=False,
        runner_type="generate",
        supports_multimodal_inputs=False,
        return_sampling_mask=False,
        enable_return_routed_experts=False,
        **more,
    )


def connector_model_config(max_model_len: int, dtype: Any) -> Any:
    """Return the attributes that vLLM's scheduler and its offloading connector read of a model."""
    return model_config(
        max_model_len,
        model="attributes-only",
        dtype=dtype,
        multimodal_config=None,
        use_mla=False,
        get_total_num_kv_heads=lambda: 1,
    )


def _parallel_config(plan: Plan) -> Any:
    return SimpleNamespace(
        tensor_parallel_size=1,
        data_parallel_size=1,
        data_parallel_index=0,
        pipeline_parallel_size=1,
        decode_context_parallel_size=plan.scenario.dcp_world_size,
        prefill_context_parallel_size=1,
    )


def _observability_config() -> Any:
    return SimpleNamespace(
        per_request_spec_decode_metrics="none",
        kv_cache_metrics=False,
        enable_mfu_metrics=False,
        enable_logging_iteration_details=False,
    )


def _speculative_config(plan: Plan) -> Any:
    return SimpleNamespace(
        num_speculative_tokens_per_batch_size=None,
        max_num_new_slots_for_drafting=0,
        disable_eagle_block_drop=False,
        use_eagle=lambda: plan.drafts_with_cache,
        use_eagle_block_drop=lambda: plan.scenario.use_eagle,
        needs_eagle_block_drop=lambda: plan.scenario.use_eagle,
    )


def _transfer_config() -> Any:
    return SimpleNamespace(
        kv_load_failure_policy="recompute",
        kv_role="kv_both",
        is_kv_producer=True,
        is_kv_consumer=True,
        engine_id="engine",
        kv_connector_extra_config={},
    )
