//! Calls of vLLM's connector where GPU and CPU memory decide together.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use kvoxide_core::host::{HostGroup, HostHit, HostPolicy, WantedLoad};
use kvoxide_core::joint::{StepStores, StoredStep};

use super::group_keys::KeysOfGroup;
use super::hash_lengths::HashLengths;
use super::leaving_plan::LeavingPlan;
use super::planner::{Found, OffloadPlanner};
use super::request::PyHostRequest;
use super::together::Together;
use crate::ffi::{IntoPyResult, config_error};
use crate::vllm::{VllmBlocks, VllmManager, keys_of_blocks};

#[pymethods]
impl OffloadPlanner {
    /// Lets a manager decide together with the tier, which must be empty and starts again. Raises an
    /// error if a group of the connector is not one of the manager.
    fn decide_with(&self, manager: &Bound<'_, VllmManager>) -> PyResult<()> {
        let py = manager.py();
        let tier = self.tier(py)?;
        let engine = manager.get().engine();
        engine.with_manager(py, |core| check_groups(py, &self.search.groups, core))?;
        if self.together.get().is_some() {
            let message = "a manager decides together with this tier already";
            return Err(PyValueError::new_err(message));
        }
        let adaptive = tier.cell.read(py, |state| {
            if state.core.num_free() < state.core.num_chunks() {
                let message = "the tier has chunks already; call decide_with on an empty tier";
                return Err(PyValueError::new_err(message));
            }
            state.core.with_policy(HostPolicy::Adaptive).into_py(py)
        })?;
        engine.decide_with_host(py, &self.search.groups, adaptive.num_chunks())?;
        tier.cell.change(py, "decide_with", |state| {
            state.core = adaptive;
            Ok(())
        })?;
        self.together.get_or_init(|| Together::of(Arc::clone(engine)));
        Ok(())
    }

    /// Lets the manager decide alone again, if it still serves.
    fn stop_deciding(&self, py: Python<'_>) -> PyResult<()> {
        match self.together.get() {
            Some(together) if !together.engine.has_ended() => together.engine.decide_alone(py),
            _ => Ok(()),
        }
    }

    /// Returns whether a manager that still serves decides together with the tier.
    fn decides_together(&self) -> bool {
        self.together.get().is_some_and(|together| !together.engine.has_ended())
    }

    /// Does the same as `look_up` in pool and tier. A load that takes many blocks from the pool waits
    /// once, until they are stored.
    #[pyo3(signature = (keys, request, num_computed, num_tokens, max_new=None, max_load=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of `look_up`")]
    fn look_up_in_both(
        &self,
        py: Python<'_>,
        keys: Vec<KeysOfGroup<'_>>,
        request: &Bound<'_, PyHostRequest>,
        num_computed: usize,
        num_tokens: usize,
        max_new: Option<usize>,
        max_load: Option<usize>,
    ) -> PyResult<Found> {
        let together = self.together()?;
        let mut request = request.try_borrow_mut()?;
        let wait = &mut request.store_wait;
        if self.tier(py)?.cell.read(py, |state| Ok(wait.is_open(&state.core)))? {
            return Ok((None, vec![0; keys.len()]));
        }
        let wanted = WantedLoad { num_computed, num_tokens, max_new, max_load };
        let found = self.find(py, &keys, |keys, tier| {
            let engine = &together.engine;
            engine.with_manager(py, |core| {
                Ok(self.search.find_in_both(wanted, keys, core.pool(), tier))
            })
        })?;
        let HostHit { num_tokens, ends, num_blocks } = found;
        if num_blocks == 0 {
            return Ok((num_tokens, ends));
        }
        let horizon = &mut together.horizon();
        let waits = self
            .tier(py)?
            .cell
            .read(py, |state| Ok(wait.waits(horizon, &state.core, num_blocks as u64)))?;
        Ok((num_tokens.filter(|_| !waits), ends))
    }

    /// Notes that requests use cached blocks, which the pool keeps for now.
    fn note_used(&self, blocks: &Bound<'_, VllmBlocks>) -> PyResult<()> {
        let py = blocks.py();
        let together = self.together()?;
        self.tier(py)?.cell.change(py, "note_used", |state| {
            together.engine.with_manager(py, |core| {
                state.core.note_used_in_pool(keys_of_blocks(core, blocks.get().ids()));
                Ok(())
            })
        })
    }

    /// Gives blocks room in the tier, and returns what is to be stored: the blocks that this step takes
    /// from the pool, before it runs, and the blocks that later steps can take soon. Each is `None` if
    /// there is nothing. Also returns how many of the latter a load asked for. `has_tokens` is true if
    /// the step computes tokens, and `has_ended` if a request ended since the last call. Without
    /// `stores_taken`, the former are not stored.
    fn store_leaving(
        &self,
        py: Python<'_>,
        has_tokens: bool,
        has_ended: bool,
        stores_taken: bool,
    ) -> PyResult<(Option<LeavingPlan>, Option<LeavingPlan>, u64)> {
        let together = self.together()?;
        let num_asked = together.horizon().num_asked();
        let step = StoredStep { has_tokens, has_ended, stores_taken };
        let tier = self.tier(py)?;
        tier.cell.change(py, "store_leaving", |state| {
            let stores = together.engine.decide_step(py, |core, hash_len| {
                if let Some(len) = hash_len {
                    HashLengths::of(len).agree(py, &mut state.hash_lengths)?;
                }
                let horizon = &mut together.horizon();
                Ok(StepStores::decide(core, &mut state.core, horizon, &self.search, step))
            })?;
            let plan = |stores| LeavingPlan::of(&self.search.groups, stores, state.hash_lengths);
            Ok((plan(stores.taken), plan(stores.leaving), num_asked))
        })
    }

    /// Returns whether the pool has allocated a block again that a plan stores.
    fn is_overwritten(&self, plan: &Bound<'_, LeavingPlan>) -> PyResult<bool> {
        let engine = &self.together()?.engine;
        engine.with_manager(plan.py(), |core| Ok(plan.get().copied.is_overwritten(core.pool())))
    }

    /// Notes that the tier was reset.
    fn forget_stores(&self) {
        if let Some(together) = self.together.get() {
            together.horizon().forget_stores();
        }
    }
}

impl OffloadPlanner {
    fn together(&self) -> PyResult<&Together> {
        let together = self.together.get();
        together.ok_or_else(|| PyValueError::new_err("call decide_with first"))
    }
}

/// Checks that a connector offloads every group of a manager that caches blocks.
fn check_groups(
    py: Python<'_>,
    groups: &[HostGroup],
    manager: &kvoxide_core::Manager,
) -> PyResult<()> {
    let is_same = |group: &HostGroup| {
        let size = manager.groups().get(group.group_idx).map(|own| own.block_size);
        size == Some(group.tokens_per_block) && group.tokens_per_chunk == group.tokens_per_block
    };
    let num_cacheable = manager.groups().iter().filter(|group| group.is_cacheable).count();
    match groups.iter().all(is_same) && groups.len() == num_cacheable {
        true => Ok(()),
        false => Err(config_error(
            py,
            "the connector does not offload every group of the manager in chunks of one block"
                .into(),
        )),
    }
}
