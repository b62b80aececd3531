//! Transfers between the pool and a tier that decides together with a manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::host::{ChunkId, HostTier, LeavingStores};
use kvoxide_core::joint::LoadedBlock;
use kvoxide_core::{BlockPool, RequestId};

use super::copied::CopiedBlocks;
use super::hash_lengths::HashLengths;
use crate::standalone::EmptyLoads;

/// The request of a load: its number and its name.
type Loading = (RequestId, String);

/// Chunks that are copied in one direction.
pub(super) struct Transfer {
    id: u64,
    /// The request that waits for a load; `None` for a store.
    request: Option<Loading>,
    copied: CopiedBlocks,
}

impl Transfer {
    fn new(request: Option<Loading>, copied: CopiedBlocks) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, request, copied })
    }

    /// Ends the transfer in the tier. Keys of a transfer that failed are removed.
    fn end(&self, tier: &mut HostTier, is_success: bool) -> kvoxide_core::Result<()> {
        if self.request.is_none() {
            tier.complete_store(self.copied.keys(), is_success);
            return Ok(());
        }
        tier.complete_load(self.copied.keys())?;
        tier.set_loading(self.copied.keys(), false);
        if !is_success {
            tier.give_up(self.copied.keys());
        }
        Ok(())
    }

    /// Returns whether the pool has allocated a block of a store to a request again.
    fn is_overwritten(&self, pool: &BlockPool) -> bool {
        self.request.is_none() && self.copied.is_overwritten(pool)
    }
}

/// The transfers that have not ended.
#[derive(Default)]
pub(super) struct Transfers {
    open: BTreeMap<u64, Arc<Transfer>>,
    /// The loads that no step has returned yet.
    new_loads: Vec<Arc<Transfer>>,
}

impl Transfers {
    /// Adds a store, which is nothing if it has no blocks.
    pub(super) fn add_store(&mut self, stores: LeavingStores) -> Arc<Transfer> {
        let store = Transfer::new(None, CopiedBlocks::of_stores(stores));
        if store.copied.len() > 0 {
            self.open.insert(store.id, Arc::clone(&store));
        }
        store
    }

    /// Adds a load.
    pub(super) fn add_load(
        &mut self,
        request: Loading,
        filled: &[LoadedBlock],
        chunks: Vec<ChunkId>,
    ) {
        let load = Transfer::new(Some(request), CopiedBlocks::of_load(filled, chunks));
        self.open.insert(load.id, Arc::clone(&load));
        self.new_loads.push(load);
    }

    /// Returns whether a load of a request has not ended.
    pub(super) fn has_load_of(&self, request: RequestId) -> bool {
        let mut requests = self.open.values().filter_map(|it| it.request.as_ref());
        requests.any(|(id, _)| *id == request)
    }

    /// Takes the loads since the last call, which are copied now. Ends the loads of requests that were
    /// freed.
    pub(super) fn take_loads(
        &mut self,
        tier: &mut HostTier,
        empty: &mut EmptyLoads,
    ) -> Vec<Arc<Transfer>> {
        let mut loads = std::mem::take(&mut self.new_loads);
        loads.retain(|load| {
            let is_wanted = load.request.as_ref().is_some_and(|(id, _)| empty.start_copy(*id));
            if !is_wanted {
                self.open.remove(&load.id);
                let ended = load.end(tier, true);
                debug_assert!(ended.is_ok(), "prepared before");
            }
            is_wanted
        });
        loads
    }

    /// Returns the stores that read blocks which the pool has allocated again.
    pub(super) fn overwritten(&self, pool: &BlockPool) -> Vec<Arc<Transfer>> {
        self.open.values().filter(|store| store.is_overwritten(pool)).cloned().collect()
    }

    /// Ends a transfer. Returns `None` if it is not open.
    pub(super) fn end(
        &mut self,
        tier: &mut HostTier,
        transfer: &PyHostTransfer,
        is_success: bool,
        empty: &mut EmptyLoads,
    ) -> Option<kvoxide_core::Result<()>> {
        if transfer.transfer.copied.len() == 0 {
            return Some(Ok(()));
        }
        let open = self.open.remove(&transfer.transfer.id)?;
        if let Some((request, _)) = open.request {
            empty.end(request, is_success);
        }
        Some(open.end(tier, is_success))
    }

    /// Forgets all transfers, after a reset of the tier.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Chunks to copy in one direction.
#[pyclass(module = "kvoxide", name = "HostTransfer", frozen)]
pub(crate) struct PyHostTransfer {
    transfer: Arc<Transfer>,
    hash_lengths: Option<HashLengths>,
}

#[pymethods]
impl PyHostTransfer {
    #[getter]
    fn block_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        self.transfer.copied.block_ids(py)
    }

    #[getter]
    fn chunk_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        self.transfer.copied.chunk_ids(py)
    }

    #[getter]
    fn group_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        let groups = self.transfer.copied.keys().map(|key| i32::from(key.group));
        groups.collect::<Vec<_>>().into_pyarray(py)
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.transfer.copied.key_list(py, self.hash_lengths)
    }

    #[getter]
    fn request_id(&self) -> Option<&str> {
        self.transfer.request.as_ref().map(|(_, name)| name.as_str())
    }

    fn __len__(&self) -> usize {
        self.transfer.copied.len()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.transfer.id == other.get().transfer.id)
    }

    fn __hash__(&self) -> u64 {
        self.transfer.id
    }

    fn __repr__(&self) -> String {
        let len = self.transfer.copied.len();
        match self.request_id() {
            Some(name) => format!("HostTransfer(load of {len} chunks for request '{name}')"),
            None => format!("HostTransfer(store of {len} chunks)"),
        }
    }
}

/// The transfers of a step.
#[pyclass(module = "kvoxide", name = "HostStep", get_all, frozen)]
pub(crate) struct PyHostStep {
    waits_for: Vec<Py<PyHostTransfer>>,
    before: Py<PyHostTransfer>,
    loads: Vec<Py<PyHostTransfer>>,
    during: Py<PyHostTransfer>,
}

/// The transfers of a step, before they are Python's.
pub(super) struct StepTransfers {
    pub(super) waits_for: Vec<Arc<Transfer>>,
    pub(super) before: Arc<Transfer>,
    pub(super) loads: Vec<Arc<Transfer>>,
    pub(super) during: Arc<Transfer>,
}

impl PyHostStep {
    pub(super) fn new(
        py: Python<'_>,
        step: StepTransfers,
        hash_lengths: Option<HashLengths>,
    ) -> PyResult<Self> {
        let one = |transfer| Py::new(py, PyHostTransfer { transfer, hash_lengths });
        let all = |transfers: Vec<_>| transfers.into_iter().map(one).collect::<PyResult<_>>();
        let StepTransfers { waits_for, before, loads, during } = step;
        Ok(Self {
            waits_for: all(waits_for)?,
            before: one(before)?,
            loads: all(loads)?,
            during: one(during)?,
        })
    }
}
