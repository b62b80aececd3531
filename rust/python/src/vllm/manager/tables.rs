//! Block tables of requests as blocks and as ids, and blocks that callers combine.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use kvoxide_core::{GroupBlocks, Manager, RequestBlocks};

use super::construction::VllmManager;
use crate::ffi::{BlockLists, computed_id_lists, id_lists};
use crate::vllm::blocks::{Held, VllmBlocks, groups_of, lists_of};
use crate::vllm::errors::IntoVllmResult;
use crate::vllm::state::VllmState;

#[pymethods]
impl VllmManager {
    fn empty_blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, VllmBlocks>> {
        let num_groups = self.engine.cell.ask(py, |core| core.groups().len())?;
        self.no_blocks(py, num_groups)
    }

    /// Returns the blocks of a request. If the caller passes the dictionaries of all groups, it
    /// returns the lists in them.
    #[pyo3(signature = (request_id, tables=None))]
    fn get_blocks(
        &self,
        request_id: &Bound<'_, PyString>,
        tables: Option<&Bound<'_, PyTuple>>,
    ) -> PyResult<VllmBlocks> {
        let py = request_id.py();
        let name = request_id.to_str()?;
        self.engine.cell.read(py, |state| {
            let lists = BlockLists::new(&self.engine, state.blocks_of(name));
            let (Some(request), Some(tables)) = (state.id_of(name), tables) else {
                return Ok(VllmBlocks::new(lists));
            };
            let (name, tables) = (request_id.clone().unbind(), tables.clone().unbind());
            Ok(VllmBlocks::held(lists, Held { request, name, tables }))
        })
    }

    fn get_block_ids<'py>(&self, py: Python<'py>, request_id: &str) -> PyResult<Bound<'py, PyAny>> {
        if self.engine.is_replaced() {
            let args = vec![PyString::new(py, request_id).into_any()];
            return self.engine.in_vllm(intern!(py, "get_block_ids"), args, None);
        }
        let lists = self.block_id_lists(py, request_id, |_, held| {
            id_lists(py, held.groups.iter().map(|group| &group.blocks))
        });
        Ok(lists?.into_any())
    }

    fn get_block_ids_for_computed_tokens<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
        num_computed_tokens: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.engine.is_replaced() {
            let num_tokens = num_computed_tokens.into_pyobject(py)?.into_any();
            let args = vec![PyString::new(py, request_id).into_any(), num_tokens];
            let name = intern!(py, "get_block_ids_for_computed_tokens");
            return self.engine.in_vllm(name, args, None);
        }
        let lists = self.block_id_lists(py, request_id, |core, held| {
            computed_id_lists(py, core, held, num_computed_tokens)
        });
        Ok(lists?.into_any())
    }

    /// Returns the number of blocks of a request in a group; `None` for a request without blocks.
    fn table_len(&self, py: Python<'_>, request_id: &str, group: usize) -> PyResult<Option<usize>> {
        self.engine.cell.read(py, |state| Ok(table_of(state, request_id, group).map(|t| t.len())))
    }

    fn wrap_blocks(&self, blocks: &Bound<'_, PyAny>) -> PyResult<VllmBlocks> {
        Ok(self.wrap(lists_of(blocks, &self.engine)?))
    }

    fn truncate_computed_blocks(
        &self,
        py: Python<'_>,
        blocks: &Bound<'_, PyAny>,
        num_computed_tokens: usize,
    ) -> PyResult<VllmBlocks> {
        let groups = groups_of(blocks, &self.engine)?;
        self.engine.cell.read(py, |state| {
            let cut = state.core.truncated(&groups, num_computed_tokens).into_vllm(py)?;
            Ok(self.wrap(cut))
        })
    }
}

impl VllmManager {
    /// Returns the ids of a request's blocks as lists; empty lists for a request without blocks.
    fn block_id_lists<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
        lists: impl FnOnce(&Manager, &RequestBlocks) -> PyResult<Bound<'py, PyTuple>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.engine.cell.read(py, |state| {
            let held = state.id_of(request_id).map(|id| state.core.blocks_of(id)).transpose();
            match held.into_vllm(py)? {
                Some(held) => lists(&state.core, held),
                None => PyTuple::new(py, state.core.groups().iter().map(|_| PyList::empty(py))),
            }
        })
    }
}

fn table_of<'a>(state: &'a VllmState, request_id: &str, group: usize) -> Option<&'a GroupBlocks> {
    let held = state.core.blocks_of(state.id_of(request_id)?).ok()?;
    held.groups.get(group).map(|held| &held.blocks)
}
