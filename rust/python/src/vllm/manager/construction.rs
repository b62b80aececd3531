//! The constructor of the engine, and its link to the Python pool.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList};

use kvoxide_core::{GroupBlocks, Manager, ManagerConfig};

use crate::ffi::{
    BlockLists, IntoPyResult, NamedOutcomes, NamedRules, Owner, PyBlockCopy, PyConfig,
    PyOutcomeReport, PyPolicy, PyRetentionReport, WithCore, manager_methods,
};
use crate::vllm::attributes::{ListLength, Requests};
use crate::vllm::blocks::VllmBlocks;
use crate::vllm::engine::Engine;
use crate::vllm::queue_walk::{VllmPoolCloser, VllmQueueEnd};
use crate::vllm::state::VllmState;

/// The engine of one vLLM manager.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmManager", frozen)]
pub(crate) struct VllmManager {
    pub(in crate::vllm) engine: Arc<Engine>,
    /// The request states to which the watermark applies; empty without a watermark.
    pub(super) waiting_states: Vec<Py<PyAny>>,
    /// The one object for no blocks.
    none: PyOnceLock<Py<VllmBlocks>>,
}

impl VllmManager {
    /// Returns the engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns blocks as an object. As in vLLM, no blocks are always the same object.
    pub(super) fn object<'py>(
        &self,
        py: Python<'py>,
        groups: Arc<Vec<GroupBlocks>>,
    ) -> PyResult<Bound<'py, VllmBlocks>> {
        match groups.iter().all(GroupBlocks::is_empty) {
            true => self.no_blocks(py, groups.len()),
            false => Bound::new(py, self.wrap(groups)),
        }
    }

    /// Returns the object for no blocks of this number of groups.
    #[inline]
    pub(super) fn no_blocks<'py>(
        &self,
        py: Python<'py>,
        num_groups: usize,
    ) -> PyResult<Bound<'py, VllmBlocks>> {
        let make = || Py::new(py, self.wrap(vec![GroupBlocks::default(); num_groups]));
        Ok(self.none.get_or_try_init(py, make)?.bind(py).clone())
    }

    /// Returns blocks as a Python object.
    pub(super) fn wrap(&self, groups: impl Into<Arc<Vec<GroupBlocks>>>) -> VllmBlocks {
        VllmBlocks::new(BlockLists::new(&self.engine, groups))
    }
}

manager_methods!(VllmManager, engine);

#[pymethods]
impl VllmManager {
    #[new]
    #[pyo3(signature = (kv_cache_config, *, max_model_len, scheduler_block_size,
        hash_block_size, max_in_flight_tokens, enable_caching, use_eagle, drops_flagged_groups,
        dcp_world_size, num_hash_lookahead_tokens, enable_mamba_shared_prefix_checkpoint, recaches_known_tail,
        num_prefill_lookahead, enable_kv_cache_events, watermark, policy,
        keep_tail_below_boundary, counts_null_references, observe, waiting_states, older_rules,
        num_tokens=None, max_priority=100, check_every=0))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        kv_cache_config: PyConfig,
        max_model_len: usize,
        scheduler_block_size: usize,
        hash_block_size: usize,
        max_in_flight_tokens: usize,
        enable_caching: bool,
        use_eagle: bool,
        drops_flagged_groups: bool,
        dcp_world_size: usize,
        num_hash_lookahead_tokens: usize,
        enable_mamba_shared_prefix_checkpoint: bool,
        recaches_known_tail: bool,
        num_prefill_lookahead: usize,
        enable_kv_cache_events: bool,
        watermark: f64,
        policy: PyPolicy,
        keep_tail_below_boundary: bool,
        counts_null_references: bool,
        observe: bool,
        waiting_states: Vec<Py<PyAny>>,
        older_rules: NamedRules,
        num_tokens: Option<ListLength>,
        max_priority: u8,
        check_every: u64,
    ) -> PyResult<Self> {
        let config = ManagerConfig {
            num_blocks: kv_cache_config.num_blocks,
            groups: kv_cache_config.groups.into_iter().map(|group| group.spec).collect(),
            max_model_len,
            needs_zeroing: kv_cache_config.needs_zeroing,
            scheduler_block_size: Some(scheduler_block_size),
            hash_block_size: Some(hash_block_size),
            max_in_flight_tokens: Some(max_in_flight_tokens),
            enable_caching,
            use_eagle,
            drops_flagged_groups,
            dcp_world_size,
            num_hash_lookahead_tokens,
            enable_mamba_shared_prefix_checkpoint,
            recaches_known_tail,
            older_rules: older_rules.0,
            num_prefill_lookahead,
            enable_events: enable_kv_cache_events,
            watermark,
            keep_tail_below_boundary,
            observe,
            policy: policy.policy,
        };
        let mut core = Manager::new(config).into_py(py)?;
        if counts_null_references {
            core.pool_mut().count_null_references();
        }
        let has_watermark = core.watermark_blocks() > 0;
        Ok(Self {
            engine: Arc::new(Engine::new(VllmState::new(
                core,
                Requests::new(num_tokens),
                max_priority,
                check_every,
            ))),
            waiting_states: if has_watermark { waiting_states } else { Vec::new() },
            none: PyOnceLock::new(),
        })
    }

    /// Sets the Python object of the block pool, once. Only a weak reference is kept. The pool must
    /// keep the returned object for its whole lifetime.
    fn set_facade(&self, pool: &Bound<'_, PyAny>) -> PyResult<VllmPoolCloser> {
        self.engine.set_facade(pool)?;
        VllmQueueEnd::open(pool.py(), &self.engine)?;
        Ok(VllmPoolCloser { engine: self.engine.clone() })
    }

    /// Poisons the manager, which then refuses every further call with this reason.
    fn poison(&self, py: Python<'_>, reason: String) {
        self.engine.cell.poison(py, reason);
    }
}
