//! Methods that the classes of both managers have, written once for both. Where the managers
//! differ, these methods use [`Owner`](super::Owner) and [`WithCore`](super::WithCore).

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use kvoxide_core::{
    BlockHash, BlockId, CacheKey, Error, GroupBlocks, GroupId, Manager, Offload, RequestBlocks,
    RequestId, Result, digest,
};

use super::numbers::not_negative;

/// Gives a class of managers the methods that do not depend on how requests are read. `$owner` is
/// the field with the [`Owner`](super::Owner).
macro_rules! manager_methods {
    ($class:ident, $owner:ident) => {
        #[pymethods]
        impl $class {
            #[getter]
            fn usage(&self, py: Python<'_>) -> PyResult<f64> {
                self.$owner.cell().ask(py, |core| core.pool().usage())
            }

            #[getter]
            fn enable_partial_hash_hits(&self, py: Python<'_>) -> PyResult<bool> {
                self.$owner.cell().ask(py, |core| core.has_partial_hits())
            }

            #[getter]
            fn mamba_shared_prefix_checkpoint(&self, py: Python<'_>) -> PyResult<bool> {
                self.$owner.cell().ask(py, |core| core.keeps_boundary_states())
            }

            #[getter]
            fn watermark_blocks(&self, py: Python<'_>) -> PyResult<usize> {
                self.$owner.cell().ask(py, |core| core.watermark_blocks())
            }

            fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
                let cell = self.$owner.cell();
                cell.change(py, "take_new_block_ids", |state| {
                    let ids = state.core_mut().take_new_block_ids();
                    cell.or_poison(py, PyList::new(py, ids))
                })
            }

            /// Returns the copies, and the blocks at both of their ends. The caller releases the
            /// references to these blocks once the copies are done.
            fn take_kv_cache_block_copies<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Vec<PyBlockCopy>, Bound<'py, PyList>)> {
                self.$owner.cell().change(py, "take_kv_cache_block_copies", |state| {
                    let copies = state.core_mut().take_block_copies();
                    let ends = copies.iter().flat_map(|&(from, to)| [from, to]);
                    let ends = self.$owner.objects_or_poison(py, ends)?;
                    Ok((copies.into_iter().map(PyBlockCopy::from).collect(), ends))
                })
            }

            /// Returns, for each request, the blocks that a connector may read: `(group, block,
            /// num_tokens)`.
            fn take_boundary_state_offloads<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<Bound<'py, PyDict>> {
                let cell = self.$owner.cell();
                cell.change(py, "take_boundary_state_offloads", |state| {
                    let offloads = state.core_mut().take_offloads();
                    let made = crate::ffi::offloads_by_name(py, &offloads, state.names());
                    cell.or_poison(py, made)
                })
            }

            fn new_step_starts(&self, py: Python<'_>) -> PyResult<()> {
                self.$owner.cell().change(py, "new_step_starts", |state| {
                    crate::ffi::update_outcome_time(state, py)?;
                    state.core_mut().new_step_starts();
                    Ok(())
                })
            }

            #[pyo3(signature = (*, per_request=false))]
            fn observe_outcomes(&self, py: Python<'_>, per_request: bool) -> PyResult<()> {
                self.$owner.cell().change(py, "observe_outcomes", |state| {
                    let seconds = state.seconds(py)?;
                    state.core_mut().observe_outcomes().into_py(py)?;
                    state.core_mut().set_outcome_time(seconds);
                    if per_request {
                        state.outcome_log().keep();
                    }
                    Ok(())
                })
            }

            /// Returns the outcomes since observation started; `None` if they are not observed.
            fn outcome_report(&self, py: Python<'_>) -> PyResult<Option<PyOutcomeReport>> {
                self.$owner.cell().ask(py, PyOutcomeReport::of)
            }

            /// Returns the outcomes of the prompts that were admitted since the last call.
            fn take_outcomes<'py>(&self, py: Python<'py>) -> PyResult<Vec<NamedOutcomes<'py>>> {
                self.$owner.cell().change(py, "take_outcomes", |state| state.outcome_log().take(py))
            }

            /// Returns the report of adaptive retention; `None` under another policy.
            fn retention_report(&self, py: Python<'_>) -> PyResult<Option<PyRetentionReport>> {
                self.$owner.cell().ask(py, PyRetentionReport::of)
            }

            fn check_invariants(&self, py: Python<'_>) -> PyResult<()> {
                self.$owner.cell().read(py, |state| {
                    state.check().map_err(kvoxide_core::Error::Internal).into_py(py)
                })
            }

            /// Returns 32 bytes that depend on the whole state.
            fn state_digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
                self.$owner.cell().read(py, |state| Ok(PyBytes::new(py, &state.digest())))
            }

            /// Panics while a block is in use that no request has. It is part of the module because
            /// a separate build would test another module than the released one.
            fn _panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
                self.$owner.cell().change(py, "_panic_for_tests", |state| {
                    crate::ffi::panic_midway(state.core_mut())
                })
            }
        }
    };
}
pub(crate) use manager_methods;

/// Gives a class the methods of a block pool.
macro_rules! pool_methods {
    ($class:ident, $owner:ident) => {
        #[pymethods]
        impl $class {
            fn get_num_free_blocks(&self, py: Python<'_>) -> PyResult<isize> {
                self.$owner.cell().ask(py, |core| core.pool().num_free_blocks())
            }

            fn get_num_pinned_blocks(&self, py: Python<'_>) -> PyResult<usize> {
                self.$owner.cell().ask(py, |core| core.pool().num_pinned_blocks())
            }

            fn get_new_blocks<'py>(
                &self,
                py: Python<'py>,
                num_blocks: i64,
            ) -> PyResult<Bound<'py, PyList>> {
                self.$owner.cell().change(py, "get_new_blocks", |state| {
                    let ids = state.call(py, |core| crate::ffi::take_blocks(core, num_blocks))?;
                    self.$owner.objects_or_poison(py, ids)
                })
            }

            fn touch(&self, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
                let (py, ids) = (blocks.py(), self.$owner.ids_of(blocks)?);
                self.$owner.cell().change(py, "touch", |state| {
                    state.call(py, |core| {
                        core.pool().by_hand().check_has_none(ids.iter().copied())?;
                        core.pool_mut().touch(&ids);
                        Ok(())
                    })
                })
            }

            fn free_blocks(&self, ordered_blocks: &Bound<'_, PyAny>) -> PyResult<()> {
                let (py, ids) = (ordered_blocks.py(), self.$owner.ids_of(ordered_blocks)?);
                self.$owner.cell().change(py, "free_blocks", |state| {
                    state.call(py, |core| core.release_blocks(&ids))
                })
            }

            fn reset_prefix_cache(&self, py: Python<'_>) -> PyResult<bool> {
                self.$owner.cell().change(py, "reset_prefix_cache", |state| {
                    state.call(py, |core| Ok(core.reset_prefix_cache()))
                })
            }
        }
    };
}
pub(crate) use pool_methods;

/// Gives a class that has a [`BlockView`](super::BlockView) the methods that compare views.
macro_rules! view_methods {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
                other.cast::<Self>().is_ok_and(|other| self.view.is_same(&other.get().view))
            }

            fn __hash__(&self) -> u64 {
                u64::from(self.view.id)
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                Ok(self.view.repr(self.ref_cnt(py)?))
            }
        }
    };
}
pub(crate) use view_methods;

/// Gives a class that has [`BlockLists`](super::BlockLists) the methods that return their ids.
macro_rules! list_methods {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            #[pyo3(signature = (allow_none=false, *, group_ids=None))]
            fn get_block_ids<'py>(
                &self,
                py: Python<'py>,
                allow_none: bool,
                group_ids: Option<Vec<isize>>,
            ) -> PyResult<Option<Bound<'py, PyTuple>>> {
                crate::ffi::lists_or_none(py, self.selected(py, group_ids)?, allow_none)
            }

            #[pyo3(signature = (*, group_ids=None))]
            fn get_block_ids_numpy<'py>(
                &self,
                py: Python<'py>,
                group_ids: Option<Vec<isize>>,
            ) -> PyResult<Bound<'py, PyTuple>> {
                crate::ffi::arrays(py, self.selected(py, group_ids)?)
            }

            fn __repr__(&self) -> String {
                self.lists.repr()
            }
        }
    };
}
pub(crate) use list_methods;

/// Returns 32 bytes that depend on the state of a core and on further numbers.
pub(crate) fn mixed_digest(core: &Manager, beside: &[usize]) -> [u8; 32] {
    let mut mixed = digest(core);
    let beside = beside.iter().copied().flat_map(usize::to_le_bytes);
    mixed.iter_mut().zip(beside).for_each(|(byte, own)| *byte ^= own);
    mixed
}

/// Returns the blocks that a connector may read, by request name: `(group, block, num_tokens)`.
pub(crate) fn offloads_by_name<'py, 'a>(
    py: Python<'py>,
    offloads: &[Offload],
    names: impl Iterator<Item = (&'a str, RequestId)>,
) -> PyResult<Bound<'py, PyDict>> {
    let by_name = PyDict::new(py);
    let wanted: hashbrown::HashSet<_> = offloads.iter().map(|offload| offload.request).collect();
    if wanted.is_empty() {
        return Ok(by_name);
    }
    let names = names.filter(|(_, id)| wanted.contains(id)).map(|(name, id)| (id, name));
    let names: hashbrown::HashMap<_, _> = names.collect();
    for &Offload { request, group, block, num_tokens } in offloads {
        let Some(name) = names.get(&request) else { continue };
        let offload = (group, block, num_tokens);
        match by_name.get_item(name)? {
            Some(list) => list.cast::<PyList>()?.append(offload)?,
            None => by_name.set_item(name, PyList::new(py, [offload])?)?,
        }
    }
    Ok(by_name)
}

/// Returns a copy of a request's block tables, a table for each group.
pub(crate) fn copied_tables(held: &RequestBlocks) -> Vec<GroupBlocks> {
    held.groups.iter().map(|group| group.blocks.clone()).collect()
}

/// Returns the block of each group that serves a hash. Returns `None` unless every group has one,
/// and for a value that cannot be a hash of this manager.
pub(crate) fn found(
    core: &Manager,
    hash: Option<BlockHash>,
    groups: Vec<GroupId>,
) -> Option<Vec<BlockId>> {
    let find = |group| core.pool().find(&CacheKey { hash: hash?, group });
    groups.into_iter().map(find).collect()
}

/// Allocates blocks from the free queue.
pub(crate) fn take_blocks(core: &mut Manager, num_blocks: i64) -> Result<Vec<BlockId>> {
    let num_blocks = not_negative("num_blocks", num_blocks).map_err(Error::Block)?;
    let mut ids = Vec::new();
    core.pool().check_free(num_blocks)?;
    core.pool_mut().allocate(num_blocks, &mut ids);
    Ok(ids)
}
