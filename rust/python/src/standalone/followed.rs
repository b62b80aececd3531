//! A manager that decides together with a tier.

use std::sync::Arc;

use pyo3::prelude::*;

use kvoxide_core::host::{HostGroup, HostSearch};
use kvoxide_core::joint::{JointPool, LoadedBlock, blocks_to_load, search_of};
use kvoxide_core::{AllocateArgs, Manager, NULL_BLOCK, RequestView};

use super::blocks::PyBlocks;
use super::loads::EmptyLoads;
use super::manager::PyManager;
use super::noted::Noted;
use super::request::PyRequest;
use super::state::StateCell;
use crate::ffi::{BlockLists, IntoPyResult, config_error, count, request_error};

/// A manager that decides together with a tier. It decides alone again when this is dropped.
pub(crate) struct FollowedManager {
    cell: Arc<StateCell>,
}

/// The blocks of a hit in the pool, its tokens, and the tokens to load after them.
pub(crate) type HitOfBoth = (PyBlocks, usize, usize);

impl FollowedManager {
    /// Lets a manager decide together with CPU memory of `num_chunks` chunks. Returns the groups
    /// that are looked up too.
    pub(crate) fn start(
        py: Python<'_>,
        manager: &PyManager,
        num_chunks: usize,
    ) -> PyResult<(Self, HostSearch)> {
        let cell = manager.cell();
        let search = cell.change(py, "decide_with", |state| {
            if state.noted.is_some() {
                let message = "a tier decides together with this manager already; use one tier";
                return Err(request_error(py, message.into()));
            }
            let search = search_of(&state.core);
            if !state.core.config().enable_caching || search.groups.is_empty() {
                let message = "the manager caches no prefixes, so policy 'adaptive' has nothing to \
                               store; create it with enable_caching=True";
                return Err(config_error(py, message.into()));
            }
            if state.core.has_served() {
                let message = "the manager has served requests, whose blocks the tier does not \
                               know; call decide_with on a new manager";
                return Err(request_error(py, message.into()));
            }
            JointPool::follow(&mut state.core, num_chunks).into_py(py)?;
            state.noted = Some(Noted::new(&search.groups));
            Ok(search)
        })?;
        Ok((Self { cell: Arc::clone(cell) }, search))
    }

    /// Lets the manager decide alone again.
    pub(crate) fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.edit(py, "decide_alone", |state| {
            state.core.set_follower(None);
            state.noted = None;
            state.loads.lose_all();
            Ok(())
        })
    }

    /// Looks up what a request can load after the hit in the pool, which ends with a whole block.
    /// `find` gets the tokens of the hit, and returns the tokens to load; `None` to look up later.
    pub(crate) fn look_up(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        blocks: &PyBlocks,
        num_computed: i64,
        find: impl FnOnce(&Manager, &RequestView<'_>, usize) -> Option<usize>,
    ) -> PyResult<Option<HitOfBoth>> {
        let num_computed = count(py, "num_new_computed_tokens", num_computed)?;
        let hit = blocks.lists.groups_at(py, &self.cell)?;
        self.cell.read(py, |state| {
            state.check_request(py, request)?;
            let new_computed_blocks = if blocks.lists.is_empty() { &[][..] } else { hit };
            let args = AllocateArgs {
                num_new_computed_tokens: num_computed,
                new_computed_blocks,
                ..AllocateArgs::default()
            };
            state.check_hit(py, &args)?;
            let core = &state.core;
            let num_partial = num_computed % core.scheduler_block_size();
            let num_whole = num_computed - num_partial;
            let wrap = |groups| PyBlocks { lists: BlockLists::new(&self.cell, groups) };
            let num_loaded = match state.looks_up(request) {
                true => find(core, &request.view(), num_whole),
                false => Some(0),
            };
            Ok(match num_loaded {
                None => None,
                Some(num) if num <= num_partial => Some((wrap(Arc::clone(hit)), num_computed, 0)),
                Some(num) if num_partial == 0 => Some((wrap(Arc::clone(hit)), num_whole, num)),
                Some(num) => {
                    let whole = core.truncated(hit, num_whole).into_py(py)?;
                    Some((wrap(Arc::new(whole)), num_whole, num))
                }
            })
        })
    }

    /// Returns the blocks that the load of a request fills: `num_loaded` tokens after `num_local`.
    pub(crate) fn blocks_to_load(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        groups: &[HostGroup],
        (num_local, num_loaded): (usize, usize),
    ) -> PyResult<Vec<LoadedBlock>> {
        let without_slots = || {
            let message = format!(
                "request '{}' has no empty blocks for its load. Call allocate_slots with \
                 num_new_computed_tokens={num_local}, num_external_computed_tokens={num_loaded} \
                 and delay_cache_blocks=True before",
                request.request_id
            );
            request_error(py, message)
        };
        self.cell.read(py, |state| {
            state.check_request(py, request)?;
            if !state.core.knows(request.id) {
                return Err(without_slots());
            }
            let tokens = (num_local, num_local + num_loaded);
            let blocks = blocks_to_load(&state.core, &request.view(), groups, tokens);
            let blocks = blocks.into_py(py)?;
            match blocks.is_empty() || blocks.iter().any(|it| it.block == NULL_BLOCK) {
                true => Err(without_slots()),
                false => Ok(blocks),
            }
        })
    }

    /// Makes a call that ends loads.
    pub(crate) fn end_loads<R>(
        &self,
        py: Python<'_>,
        name: &'static str,
        call: impl FnOnce(&mut EmptyLoads) -> R,
    ) -> PyResult<R> {
        self.cell.edit(py, name, |state| Ok(call(&mut state.loads)))
    }

    /// Makes a call that decides what a step stores. It gets what was noted since the call before,
    /// the loads, and the length of the manager's hashes, once there was one.
    pub(crate) fn decide_step<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Manager, &mut Noted, &mut EmptyLoads, Option<usize>) -> PyResult<R>,
    ) -> PyResult<R> {
        self.cell.edit(py, "prepare_step", |state| match &mut state.noted {
            Some(noted) => call(&mut state.core, noted, &mut state.loads, state.hash_len),
            None => Err(request_error(py, "the manager decides alone".into())),
        })
    }
}

impl Drop for FollowedManager {
    fn drop(&mut self) {
        // A manager that refuses the call serves no more requests.
        Python::try_attach(|py| self.stop(py).is_ok());
    }
}
