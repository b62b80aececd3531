//! CPU memory of replays, for Python.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use kvoxide_core::Error;
use kvoxide_core::host::HostPolicy;
use kvoxide_replay::host::{HostMemory, HostReport, Link};

use crate::ffi::{NewArgs, new_args, size, to_py};

/// The CPU memory of each instance.
#[pyclass(module = "kvoxide", name = "HostMemory", frozen, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyHostMemory {
    pub(crate) memory: HostMemory,
}

#[pymethods]
impl PyHostMemory {
    #[new]
    #[pyo3(signature = (num_chunks, chunk_bytes, *, eviction_policy="lru", store_threshold=0,
        max_tracker_size=64_000, offload_prompt_only=true, load_bandwidth=None, load_latency=None,
        store_bandwidth=None, store_latency=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        num_chunks: i64,
        chunk_bytes: i64,
        eviction_policy: &str,
        store_threshold: i64,
        max_tracker_size: i64,
        offload_prompt_only: bool,
        load_bandwidth: Option<f64>,
        load_latency: Option<f64>,
        store_bandwidth: Option<f64>,
        store_latency: Option<f64>,
    ) -> PyResult<Self> {
        let policy = named_policy(eviction_policy).map_err(|error| to_py(py, &error))?;
        let threshold = size(py, "store_threshold", store_threshold)?;
        let usual = Link::default();
        let link = |bandwidth: Option<f64>, latency: Option<f64>| Link {
            bandwidth: bandwidth.unwrap_or(usual.bandwidth),
            latency: latency.unwrap_or(usual.latency),
        };
        let memory = HostMemory {
            num_chunks: size(py, "num_chunks", num_chunks)?,
            chunk_bytes: size(py, "chunk_bytes", chunk_bytes)? as u64,
            policy,
            store_threshold: u32::try_from(threshold).unwrap_or(u32::MAX),
            max_tracker_size: size(py, "max_tracker_size", max_tracker_size)?,
            prompt_only: offload_prompt_only,
            load: link(load_bandwidth, load_latency),
            store: link(store_bandwidth, store_latency),
        };
        memory.check().map_err(|error| to_py(py, &error))?;
        Ok(Self { memory })
    }

    #[getter]
    fn num_chunks(&self) -> usize {
        self.memory.num_chunks
    }

    #[getter]
    fn chunk_bytes(&self) -> u64 {
        self.memory.chunk_bytes
    }

    #[getter]
    fn eviction_policy(&self) -> &'static str {
        let own = self.memory.policy;
        let named = HostPolicy::ALL.into_iter().find(|(_, policy)| *policy == own);
        named.map_or("lru", |(name, _)| name)
    }

    #[getter]
    fn store_threshold(&self) -> u32 {
        self.memory.store_threshold
    }

    #[getter]
    fn max_tracker_size(&self) -> usize {
        self.memory.max_tracker_size
    }

    #[getter]
    fn offload_prompt_only(&self) -> bool {
        self.memory.prompt_only
    }

    #[getter]
    fn load_bandwidth(&self) -> f64 {
        self.memory.load.bandwidth
    }

    #[getter]
    fn load_latency(&self) -> f64 {
        self.memory.load.latency
    }

    #[getter]
    fn store_bandwidth(&self) -> f64 {
        self.memory.store.bandwidth
    }

    #[getter]
    fn store_latency(&self) -> f64 {
        self.memory.store.latency
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArgs<'py, (usize, u64)>> {
        new_args(
            py,
            (self.num_chunks(), self.chunk_bytes()),
            [
                ("eviction_policy", self.eviction_policy().into_bound_py_any(py)?),
                ("store_threshold", self.store_threshold().into_bound_py_any(py)?),
                ("max_tracker_size", self.max_tracker_size().into_bound_py_any(py)?),
                ("offload_prompt_only", self.offload_prompt_only().into_bound_py_any(py)?),
                ("load_bandwidth", self.load_bandwidth().into_bound_py_any(py)?),
                ("load_latency", self.load_latency().into_bound_py_any(py)?),
                ("store_bandwidth", self.store_bandwidth().into_bound_py_any(py)?),
                ("store_latency", self.store_latency().into_bound_py_any(py)?),
            ],
        )
    }
}

/// Returns the order of eviction with a name.
fn named_policy(name: &str) -> Result<HostPolicy, Error> {
    let names = HostPolicy::ALL.map(|(name, _)| name).join(", ");
    let message =
        || Error::Config(format!("eviction_policy is {name:?}; it can be one of {names}"));
    HostPolicy::named(name).ok_or_else(message)
}

/// The counts of CPU memory in a run.
#[pyclass(module = "kvoxide", name = "HostMemoryResult", frozen)]
pub(crate) struct HostMemoryResult {
    pub(crate) report: HostReport,
}

#[pymethods]
impl HostMemoryResult {
    #[getter]
    fn num_chunks(&self) -> usize {
        self.report.capacity
    }

    #[getter]
    fn chunk_bytes(&self) -> u64 {
        self.report.chunk_bytes
    }

    #[getter]
    fn stored_chunks(&self) -> u64 {
        self.report.stored
    }

    #[getter]
    fn stored_tail_chunks(&self) -> u64 {
        self.report.stored_tails
    }

    #[getter]
    fn loads(&self) -> u64 {
        self.report.loads
    }

    #[getter]
    fn all_loaded_tokens(&self) -> u64 {
        self.report.loaded_tokens
    }

    #[getter]
    fn loaded_chunks(&self) -> u64 {
        self.report.loaded
    }

    #[getter]
    fn loaded_chunks_in_pool(&self) -> u64 {
        self.report.loaded_twice
    }

    #[getter]
    fn evicted_chunks(&self) -> u64 {
        self.report.evicted
    }

    #[getter]
    fn never_loaded_chunks(&self) -> u64 {
        self.report.never_loaded
    }

    #[getter]
    fn refused_offers(&self) -> u64 {
        self.report.refused
    }

    #[getter]
    fn skipped_chunks(&self) -> u64 {
        self.report.skipped
    }

    #[getter]
    fn held_twice_share(&self) -> Option<f64> {
        self.report.twice_share()
    }

    #[getter]
    fn without_tail_tokens(&self) -> u64 {
        self.report.without_tail
    }

    #[getter]
    fn store_seconds(&self) -> f64 {
        self.report.store_time as f64 / 1e9
    }

    #[getter]
    fn load_seconds(&self) -> f64 {
        self.report.load_time as f64 / 1e9
    }

    #[getter]
    fn fence_seconds(&self) -> f64 {
        self.report.fence_time as f64 / 1e9
    }
}
