//! The report of adaptive retention, for Python.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use kvoxide_core::pool::ScoringFunction;
use kvoxide_core::{ByKind, Manager, RetentionReport};

/// Decisions of adaptive retention and their results.
#[pyclass(module = "kvoxide", name = "RetentionReport", frozen, get_all, skip_from_py_object)]
pub(crate) struct PyRetentionReport {
    ordering: &'static str,
    in_use_blocks: u64,
    full_blocks: u64,
    tail_blocks: u64,
    held_blocks: u64,
    empty_blocks: u64,
    evicted_full_blocks: u64,
    evicted_tail_blocks: u64,
    prompt_tokens: u64,
    hit_tokens: u64,
    hit_prompt_tokens: u64,
    hit_answer_tokens: u64,
    sampled_blocks: u64,
    sampled_hits: u64,
    sampled_kept: BTreeMap<&'static str, u64>,
    default_hit_tokens: u64,
    is_default_hit_a_limit: bool,
}

impl PyRetentionReport {
    /// Returns the report of a manager; `None` without adaptive retention.
    pub fn of(manager: &Manager) -> Option<Self> {
        manager.pool().adaptive()?;
        let RetentionReport {
            ordering,
            in_use,
            waiting,
            held,
            empty,
            evictions,
            admitted,
            sample,
            default_hits,
        } = manager.retention_report();
        let sample = sample?;
        let ByKind { full, tail } = waiting;
        Some(Self {
            ordering: ordering?.name(),
            in_use_blocks: in_use,
            full_blocks: full,
            tail_blocks: tail,
            held_blocks: held,
            empty_blocks: empty,
            evicted_full_blocks: evictions.full,
            evicted_tail_blocks: evictions.tail,
            prompt_tokens: admitted.prompt_tokens,
            hit_tokens: admitted.hit_tokens,
            hit_prompt_tokens: admitted.hit_tokens - admitted.hit_answer_tokens,
            hit_answer_tokens: admitted.hit_answer_tokens,
            sampled_blocks: sample.asked,
            sampled_hits: sample.hit,
            sampled_kept: ScoringFunction::ALL
                .into_iter()
                .map(ScoringFunction::name)
                .zip(sample.kept)
                .collect(),
            default_hit_tokens: default_hits.tokens,
            is_default_hit_a_limit: default_hits.is_upper_limit,
        })
    }
}
