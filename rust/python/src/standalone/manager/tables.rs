//! Block tables of requests as blocks and as ids, and blocks that callers combine.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use kvoxide_core::GroupBlocks;

use super::construction::PyManager;
use crate::ffi::{IntoPyResult, computed_id_lists, copied_tables, count, id_lists, request_error};
use crate::standalone::blocks::{PyBlock, PyBlocks};

#[pymethods]
impl PyManager {
    #[getter]
    fn empty_kv_cache_blocks(&self, py: Python<'_>) -> PyResult<PyBlocks> {
        self.cell.ask(py, |core| self.wrap(core.no_blocks()))
    }

    fn get_blocks(&self, py: Python<'_>, request_id: &str) -> PyResult<PyBlocks> {
        self.cell.read(py, |state| Ok(self.wrap(copied_tables(state.blocks_of(py, request_id)?))))
    }

    fn get_block_ids<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.cell.read(py, |state| {
            let held = state.blocks_of(py, request_id)?;
            id_lists(py, held.groups.iter().map(|group| &group.blocks))
        })
    }

    fn get_block_ids_for_computed_tokens<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
        num_computed_tokens: i64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        self.cell.read(py, |state| {
            let held = state.blocks_of(py, request_id)?;
            computed_id_lists(py, &state.core, held, num_computed)
        })
    }

    fn get_num_common_prefix_blocks(
        &self,
        py: Python<'_>,
        running_request_id: &str,
    ) -> PyResult<Vec<usize>> {
        self.cell.read(py, |state| {
            state.request_id(py, running_request_id)?;
            Ok(vec![0; state.core.config().groups.len()])
        })
    }

    fn create_kv_cache_blocks(
        &self,
        py: Python<'_>,
        blocks: Vec<Vec<Bound<'_, PyBlock>>>,
    ) -> PyResult<PyBlocks> {
        let num_groups = self.num_groups(py)?;
        if blocks.len() != num_groups {
            let message =
                format!("{} groups were given, but the manager has {num_groups}", blocks.len());
            return Err(request_error(py, message));
        }
        let ids = |group: Vec<Bound<'_, PyBlock>>| {
            let ids = group.iter().map(|block| block.get().view.id_at(py, &self.cell));
            Ok(GroupBlocks::new(0, ids.collect::<PyResult<_>>()?))
        };
        Ok(self.wrap(blocks.into_iter().map(ids).collect::<PyResult<Vec<_>>>()?))
    }

    fn truncate_computed_blocks(
        &self,
        py: Python<'_>,
        blocks: &Bound<'_, PyBlocks>,
        num_computed_tokens: i64,
    ) -> PyResult<PyBlocks> {
        let groups = blocks.get().lists.groups_at(py, &self.cell)?;
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        self.cell.read(py, |state| {
            Ok(self.wrap(state.core.truncated(groups, num_computed).into_py(py)?))
        })
    }
}
