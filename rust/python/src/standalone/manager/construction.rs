//! The constructor of a manager, and the constructor's arguments.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use kvoxide_core::{GroupBlocks, Manager, ManagerConfig};

use crate::ffi::{
    BlockLists, GuardedCell, IntoPyResult, NamedOutcomes, OutcomeLog, Owner, PyBlockCopy, PyConfig,
    PyOutcomeReport, PyPolicy, PyRetentionReport, WithCore, manager_methods, optional_size, size,
};
use crate::standalone::blocks::PyBlocks;
use crate::standalone::clock::Clock;
use crate::standalone::loads::EmptyLoads;
use crate::standalone::pool::PyBlockPool;
use crate::standalone::state::{State, StateCell};
use crate::standalone::stats::PrefixCacheStats;

/// The KV cache manager of a scheduler.
#[pyclass(module = "kvoxide", name = "KVCacheManager", frozen)]
pub(crate) struct PyManager {
    pub(super) cell: Arc<StateCell>,
    config: PyConfig,
}

impl PyManager {
    /// Returns the cell with the manager's state.
    pub(in crate::standalone) fn cell(&self) -> &Arc<StateCell> {
        &self.cell
    }

    /// Returns blocks as a Python object.
    pub(super) fn wrap(&self, groups: impl Into<Arc<Vec<GroupBlocks>>>) -> PyBlocks {
        PyBlocks { lists: BlockLists::new(&self.cell, groups) }
    }

    pub(super) fn num_groups(&self, py: Python<'_>) -> PyResult<usize> {
        self.cell.ask(py, |core| core.config().groups.len())
    }
}

manager_methods!(PyManager, cell);

#[pymethods]
impl PyManager {
    #[new]
    #[pyo3(signature = (kv_cache_config, max_model_len, scheduler_block_size=None,
        hash_block_size=None, max_in_flight_tokens=None, enable_caching=true, use_eagle=false,
        num_hash_lookahead_tokens=0, num_prefill_lookahead=0, log_stats=false,
        enable_kv_cache_events=false, dcp_world_size=1, *, watermark=0.0,
        enable_mamba_shared_prefix_checkpoint=false, policy=None, clock=None))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn new(
        py: Python<'_>,
        kv_cache_config: PyConfig,
        max_model_len: i64,
        scheduler_block_size: Option<i64>,
        hash_block_size: Option<i64>,
        max_in_flight_tokens: Option<i64>,
        enable_caching: bool,
        use_eagle: bool,
        num_hash_lookahead_tokens: i64,
        num_prefill_lookahead: i64,
        log_stats: bool,
        enable_kv_cache_events: bool,
        dcp_world_size: i64,
        watermark: f64,
        enable_mamba_shared_prefix_checkpoint: bool,
        policy: Option<PyPolicy>,
        clock: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let lookahead = size(py, "num_hash_lookahead_tokens", num_hash_lookahead_tokens)?;
        let groups = kv_cache_config.groups.iter().map(|group| group.spec.clone()).collect();
        let max_model_len = size(py, "max_model_len", max_model_len)?;
        let config = ManagerConfig {
            scheduler_block_size: optional_size(py, "scheduler_block_size", scheduler_block_size)?,
            hash_block_size: optional_size(py, "hash_block_size", hash_block_size)?,
            max_in_flight_tokens: optional_size(py, "max_in_flight_tokens", max_in_flight_tokens)?,
            enable_caching,
            use_eagle,
            dcp_world_size: size(py, "dcp_world_size", dcp_world_size)?,
            num_hash_lookahead_tokens: lookahead,
            enable_mamba_shared_prefix_checkpoint,
            num_prefill_lookahead: size(py, "num_prefill_lookahead", num_prefill_lookahead)?,
            enable_events: enable_kv_cache_events,
            watermark,
            policy: policy.unwrap_or_default().policy,
            needs_zeroing: kv_cache_config.needs_zeroing,
            ..ManagerConfig::new(kv_cache_config.num_blocks, groups, max_model_len)
        };
        config.check_holds_a_request().into_py(py)?;
        let state = State {
            core: Manager::new(config).into_py(py)?,
            hash_len: None,
            names: HashMap::new(),
            stats: log_stats.then(PrefixCacheStats::default),
            num_hash_lookahead_tokens: lookahead,
            events: Vec::new(),
            retentions: HashMap::new(),
            clock: Clock::new(clock),
            noted: None,
            loads: EmptyLoads::default(),
            outcomes: OutcomeLog::default(),
        };
        Ok(Self { cell: Arc::new(GuardedCell::new(state)), config: kv_cache_config })
    }

    #[getter]
    fn kv_cache_config(&self) -> PyConfig {
        self.config.clone()
    }

    #[getter]
    fn policy(&self, py: Python<'_>) -> PyResult<PyPolicy> {
        self.cell.ask(py, |core| PyPolicy { policy: core.config().policy.clone() })
    }

    #[getter]
    fn max_model_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.cell.ask(py, |core| core.config().max_model_len)
    }

    #[getter]
    fn scheduler_block_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.cell.ask(py, |core| core.scheduler_block_size())
    }

    #[getter]
    fn hash_block_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.cell.ask(py, |core| core.hash_block_size())
    }

    #[getter]
    fn enable_caching(&self, py: Python<'_>) -> PyResult<bool> {
        self.cell.ask(py, |core| core.config().enable_caching)
    }

    #[getter]
    fn num_kv_cache_groups(&self, py: Python<'_>) -> PyResult<usize> {
        self.num_groups(py)
    }

    #[getter]
    fn block_pool(&self) -> PyBlockPool {
        PyBlockPool { cell: self.cell.clone() }
    }
}
