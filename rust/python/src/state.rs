//! What the standalone manager keeps behind its gate: the core, and what only Python asks for.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::request::RequestBlocks;
use kvoxide_core::{AllocateArgs, BlockId, Error, Manager, RequestId};

use crate::errors::{IntoPyResult, to_py};
use crate::events::PendingEvent;
use crate::gate::Guarded;
use crate::request::PyRequest;
use crate::stats::PrefixCacheStats;

/// The state of a standalone manager.
pub struct State {
    pub core: Manager,
    pub hash_len: Option<usize>,
    pub names: HashMap<String, RequestId>,
    pub stats: Option<PrefixCacheStats>,
    pub num_hash_lookahead_tokens: usize,
    pub events: Vec<PendingEvent>,
}

impl Guarded for State {
    #[inline]
    fn look_after(&mut self, _: &'static str) -> Result<(), String> {
        Ok(())
    }
}

impl State {
    /// Bytes of the block hashes in use.
    pub fn hash_len(&self) -> usize {
        self.hash_len.unwrap_or(0)
    }

    /// Runs a call that may change the core, and keeps the events it causes.
    pub fn change<T>(
        &mut self,
        py: Python<'_>,
        request: Option<&PyRequest>,
        call: impl FnOnce(&mut Manager) -> kvoxide_core::Result<T>,
    ) -> PyResult<T> {
        let result = call(&mut self.core).into_py(py);
        let lookahead = self.num_hash_lookahead_tokens;
        let events = self.core.take_events().into_iter();
        self.events.extend(events.map(|event| PendingEvent::new(event, request, lookahead)));
        result
    }

    /// The events since the last call.
    pub fn take_events<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let hash_len = self.hash_len();
        let groups = &self.core.config().groups;
        let events = std::mem::take(&mut self.events).into_iter();
        let events = events.map(|event| event.into_py(py, hash_len, groups));
        PyList::new(py, events.collect::<PyResult<Vec<_>>>()?)
    }

    /// From its first hashed request on, a manager knows the length of its hashes.
    pub fn adopt_hash_len(&mut self, request: &PyRequest) {
        if self.hash_len.is_none() && !request.hashes.is_empty() {
            self.hash_len = Some(request.hash_len);
        }
    }

    /// Whether look-ups are for this request.
    pub fn looks_up(&self, request: &PyRequest) -> bool {
        self.core.config().enable_caching && !request.skip_reading_prefix_cache
    }

    /// Slots for a step of a request: `None` if they do not fit, else the new blocks.
    pub fn allocate(
        &mut self,
        py: Python<'_>,
        request: &PyRequest,
        args: &AllocateArgs<'_>,
    ) -> PyResult<Option<Vec<Vec<BlockId>>>> {
        self.check_allocation(py, request, args)?;
        let view = request.view();
        let new = self.change(py, Some(request), |core| core.allocate_slots(&view, args))?;
        self.adopt_hash_len(request);
        if self.core.knows(request.id) && !self.names.contains_key(&request.request_id) {
            self.names.insert(request.request_id.clone(), request.id);
        }
        Ok(new)
    }

    /// Empties the prefix cache unless a block is in use.
    pub fn reset_pool(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.change(py, None, |core| Ok(core.reset_prefix_cache()))
    }

    /// What a request holds.
    pub fn blocks_of(&self, py: Python<'_>, name: &str) -> PyResult<&RequestBlocks> {
        self.core.blocks_of(self.request_id(py, name)?).into_py(py)
    }

    /// The number of a request that is held.
    pub fn request_id(&self, py: Python<'_>, name: &str) -> PyResult<RequestId> {
        let id = self.names.get(name).copied();
        id.ok_or_else(|| to_py(py, &Error::UnknownRequest(name.to_owned())))
    }

    /// Checks that a request is held by this manager.
    pub fn held(&self, py: Python<'_>, request: &PyRequest) -> PyResult<RequestId> {
        self.check_request(py, request)?;
        self.request_id(py, &request.request_id)
    }
}
