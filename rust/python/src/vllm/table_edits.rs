//! Reads and writes of block tables and of numbers of cached blocks by code outside the manager.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::manager::VllmManager;
use super::synced::RequestField;
use crate::ffi::Owner;

#[pymethods]
impl VllmManager {
    /// Keeps a list equal to the table of a request in a group. Also keeps an entry of a dictionary
    /// for as long as the request is known. The list is empty when passed. Returns `false` for a
    /// request without blocks.
    fn sync_table(
        &self,
        request_id: &str,
        group: usize,
        row: &Bound<'_, PyList>,
        rows: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let py = row.py();
        self.engine.cell.edit(py, "sync_table", |state| {
            let Some(id) = state.id_of(request_id) else { return Ok(false) };
            self.engine.synced(state).add_row(id, group, row, rows);
            state.update_synced(py)?;
            rows.set_item(request_id, row)?;
            Ok(true)
        })
    }

    /// Replaces the table of a request in a group.
    fn write_row(
        &self,
        py: Python<'_>,
        request_id: &str,
        group: usize,
        blocks: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let ids = self.engine.ids_of(blocks)?;
        self.engine.cell.edit(py, "write_row", |state| {
            state.write(py, request_id, |core, id| core.write_table(id, group, ids))
        })
    }

    /// Keeps a dictionary equal to the numbers of leading blocks that count as cached in a group,
    /// if these numbers are known. The dictionary is empty when passed.
    fn sync_num_cached(&self, group: usize, counts: &Bound<'_, PyDict>) -> PyResult<()> {
        self.sync_fields(group, RequestField::NumCached, counts)
    }

    /// Keeps a dictionary equal to the states inside the running chunks of a group: the tokens and
    /// the position of each state. The dictionary is empty when passed.
    fn sync_checkpoints(&self, group: usize, checkpoints: &Bound<'_, PyDict>) -> PyResult<()> {
        self.sync_fields(group, RequestField::Checkpoint, checkpoints)
    }

    /// Sets the number of leading blocks of a request in a group that count as cached.
    #[pyo3(signature = (request_id, group, num_cached))]
    fn write_num_cached(
        &self,
        py: Python<'_>,
        request_id: &str,
        group: usize,
        num_cached: Option<usize>,
    ) -> PyResult<()> {
        self.engine.cell.edit(py, "write_num_cached", |state| {
            state.write(py, request_id, |core, id| core.write_num_cached(id, group, num_cached))
        })
    }
}

impl VllmManager {
    fn sync_fields(
        &self,
        group: usize,
        field: RequestField,
        dict: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let py = dict.py();
        self.engine.cell.edit(py, "sync_fields", |state| {
            let mut known: Vec<_> =
                state.requests.iter().map(|(name, known)| (known.id, name.clone())).collect();
            known.sort_unstable();
            self.engine.synced(state).add_fields(group, field, dict, known);
            state.update_synced(py)
        })
    }
}
