//! Reads and writes of block tables and of numbers of cached blocks by code outside the manager.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::blocks::ids_of;
use super::manager::VllmManager;

#[pymethods]
impl VllmManager {
    /// Keeps a list, empty when passed, equal to the table of a request in a group, and an entry of
    /// a dictionary for as long as the request is known. Returns `false` for a request without
    /// blocks.
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
        let ids = ids_of(blocks, &self.engine)?;
        self.engine.cell.edit(py, "write_row", |state| {
            state.write(py, request_id, |core, id| core.write_table(id, group, ids))
        })
    }

    /// Returns how many leading blocks of a request in a group count as cached, where that is
    /// known.
    fn num_cached_of(
        &self,
        py: Python<'_>,
        request_id: &str,
        group: usize,
    ) -> PyResult<Option<usize>> {
        self.engine.cell.read(py, |state| {
            let held = state.id_of(request_id).and_then(|id| state.core.blocks_of(id).ok());
            Ok(held.and_then(|held| held.groups.get(group)?.num_cached_blocks))
        })
    }

    /// Sets how many leading blocks of a request in a group count as cached.
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
