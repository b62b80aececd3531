//! Calls of a tier that decides together with a standalone manager.

use pyo3::prelude::*;

use kvoxide_core::host::{HashKeys, HostRequest, StoreWait, WantedLoad};
use kvoxide_core::joint::{StepStores, StoredStep, note_used};

use super::hash_lengths::HashLengths;
use super::pair::{Pair, Partner};
use super::state::{HostState, not_adaptive};
use super::tier::PyHostTier;
use super::transfers::{PyHostStep, PyHostTransfer, StepTransfers};
use crate::ffi::{IntoPyResult, request_error};
use crate::standalone::{FollowedManager, HitOfBoth, PyBlocks, PyManager, PyRequest};

#[pymethods]
impl PyHostTier {
    fn decide_with(&self, manager: &Bound<'_, PyManager>) -> PyResult<()> {
        let py = manager.py();
        self.cell.change(py, "decide_with", |state| match state.partner {
            Partner::Unneeded => Err(not_adaptive(py, "decide_with", state.core.policy().name())),
            Partner::Manager(_) => {
                let message = "this tier decides together with a manager already; call \
                               decide_alone before";
                Err(request_error(py, message.into()))
            }
            Partner::Missing => {
                let num_chunks = state.core.num_chunks();
                let started = FollowedManager::start(py, manager.get(), num_chunks)?;
                state.partner = Partner::Manager(Box::new(Pair::new(started)));
                Ok(())
            }
        })
    }

    fn decide_alone(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.change(py, "decide_alone", |state| {
            let (tier, pair) = state.paired(py, "decide_alone")?;
            pair.manager.stop(py)?;
            tier.reset();
            state.partner = Partner::Missing;
            Ok(())
        })
    }

    fn lookup_request(
        &self,
        request: &Bound<'_, PyRequest>,
        new_computed_blocks: &Bound<'_, PyBlocks>,
        num_new_computed_tokens: i64,
    ) -> PyResult<Option<HitOfBoth>> {
        let py = request.py();
        let request = &mut *request.try_borrow_mut()?;
        self.cell.change(py, "lookup_request", |state| {
            let (tier, pair) = state.paired(py, "lookup_request")?;
            let Pair { manager, search, horizon, transfers } = pair;
            if transfers.has_load_of(request.id) {
                return Ok(None);
            }
            let mut wait = request.store_wait;
            if wait.is_open(tier) {
                return Ok(None);
            }
            let (blocks, num_computed) = (new_computed_blocks.get(), num_new_computed_tokens);
            let found =
                manager.look_up(py, request, blocks, num_computed, |manager, view, start| {
                    let size = manager.hash_block_size();
                    let keys = search.groups.iter().map(|it| HashKeys::of(it, view.hashes, size));
                    let keys: Vec<_> = keys.collect();
                    let wanted = WantedLoad {
                        num_computed: start,
                        num_tokens: view.num_tokens,
                        max_new: None,
                        max_load: None,
                    };
                    // A hash that needs tokens after its block can be missing.
                    let found = search.find_in_both(wanted, &keys, manager.pool(), tier);
                    let (num_tokens, num_blocks) =
                        found.map_or((Some(0), 0), |hit| (hit.num_tokens, hit.num_blocks));
                    let num_tokens = num_tokens?;
                    let waits = num_blocks > 0 && wait.waits(horizon, tier, num_blocks as u64);
                    (!waits).then_some(num_tokens)
                })?;
            request.store_wait = wait;
            let load = found.as_ref().map(|&(_, num_local, num_loaded)| (num_local, num_loaded));
            request.load = load.filter(|&(_, num_loaded)| num_loaded > 0);
            Ok(found)
        })
    }

    fn start_load(&self, request: &Bound<'_, PyRequest>) -> PyResult<()> {
        let py = request.py();
        let request = &mut *request.try_borrow_mut()?;
        self.cell.change(py, "start_load", |state| {
            let (tier, pair) = state.paired(py, "start_load")?;
            let name = &request.request_id;
            let Some(tokens) = request.load else {
                let message = format!(
                    "request '{name}' has nothing to load. Call start_load once after a \
                     lookup_request that returned tokens to load"
                );
                return Err(request_error(py, message));
            };
            let groups = &pair.search.groups;
            let filled = pair.manager.blocks_to_load(py, request, groups, tokens)?;
            let keys = filled.iter().map(|it| (it.key, Some(it.position)));
            let Ok(chunks) = tier.prepare_load(&mut HostRequest::default(), keys) else {
                let message = format!(
                    "chunks of request '{name}' were evicted after the look-up. Free the request \
                     and look it up again"
                );
                return Err(request_error(py, message));
            };
            tier.set_loading(filled.iter().map(|it| it.key), true);
            pair.transfers.add_load((request.id, name.clone()), &filled, chunks);
            (request.load, request.store_wait) = (None, StoreWait::NotAsked);
            Ok(())
        })
    }

    fn prepare_step(&self, py: Python<'_>) -> PyResult<PyHostStep> {
        self.cell.change(py, "prepare_step", |state| {
            let step = state.decide_step(py)?;
            self.cell.or_poison(py, PyHostStep::new(py, step, state.hash_lengths))
        })
    }

    #[pyo3(signature = (transfer, success=true))]
    fn complete(&self, transfer: &Bound<'_, PyHostTransfer>, success: bool) -> PyResult<()> {
        let py = transfer.py();
        self.cell.change(py, "complete", |state| {
            let (tier, pair) = state.paired(py, "complete")?;
            let Pair { manager, transfers, .. } = pair;
            let transfer = transfer.get();
            let ended = manager
                .end_loads(py, "complete", |loads| transfers.end(tier, transfer, success, loads))?;
            match ended {
                Some(ended) => ended.into_py(py),
                None => {
                    let message = "the transfer is not open in this tier: it was completed, the \
                                   tier was reset, or the tier is another one";
                    Err(request_error(py, message.into()))
                }
            }
        })
    }
}

impl HostState {
    /// Decides the transfers of a step.
    fn decide_step(&mut self, py: Python<'_>) -> PyResult<StepTransfers> {
        let mut hash_lengths = self.hash_lengths;
        let (tier, pair) = self.paired(py, "prepare_step")?;
        let Pair { manager, search, horizon, transfers } = pair;
        let step = manager.decide_step(py, |manager, noted, empty_loads, hash_len| {
            if let Some(len) = hash_len {
                HashLengths::of(len).agree(py, &mut hash_lengths)?;
            }
            let admitted = std::mem::take(&mut noted.admitted);
            admitted.into_iter().for_each(|request| note_used(manager, tier, request));
            let loads = transfers.take_loads(tier, empty_loads);
            let has_ended = std::mem::take(&mut noted.has_ended);
            let step = StoredStep { has_tokens: true, has_ended, stores_taken: true };
            let stores = StepStores::decide(manager, tier, horizon, search, step);
            let waits_for = transfers.overwritten(manager.pool());
            Ok(StepTransfers {
                waits_for,
                before: transfers.add_store(stores.taken),
                loads,
                during: transfers.add_store(stores.leaving),
            })
        })?;
        self.hash_lengths = hash_lengths;
        Ok(step)
    }
}
