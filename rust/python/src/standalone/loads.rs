//! The loads of requests whose blocks are still empty.

use std::collections::HashMap;

use pyo3::prelude::*;

use kvoxide_core::RequestId;

use super::request::PyRequest;
use crate::ffi::request_error;

/// A load that has not filled its blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EmptyLoad {
    /// No step has returned it.
    Waiting,
    /// A step has returned it, so its blocks may be written now.
    Copying,
    /// It failed, or the tier forgot it.
    Lost,
}

/// The requests whose loads have not filled their blocks.
#[derive(Default)]
pub(crate) struct EmptyLoads(HashMap<RequestId, EmptyLoad>);

impl EmptyLoads {
    /// Notes that a request has got slots for a load.
    pub(super) fn add(&mut self, request: RequestId) {
        self.0.insert(request, EmptyLoad::Waiting);
    }

    /// Notes that a step returns the load of a request. Returns `false` if the request was freed.
    pub(crate) fn start_copy(&mut self, request: RequestId) -> bool {
        let load = self.0.get_mut(&request).filter(|load| **load == EmptyLoad::Waiting);
        load.map(|load| *load = EmptyLoad::Copying).is_some()
    }

    /// Notes that the load of a request has ended.
    pub(crate) fn end(&mut self, request: RequestId, is_success: bool) {
        if is_success {
            self.remove(request);
        } else if let Some(load) = self.0.get_mut(&request) {
            *load = EmptyLoad::Lost;
        }
    }

    /// Notes that a request was freed.
    pub(super) fn remove(&mut self, request: RequestId) {
        self.0.remove(&request);
    }

    /// Notes that the tier has forgotten all loads.
    pub(crate) fn lose_all(&mut self) {
        self.0.values_mut().for_each(|load| *load = EmptyLoad::Lost);
    }

    /// Refuses to use the content of blocks that a load has not filled.
    pub(super) fn check_filled(&self, py: Python<'_>, request: &PyRequest) -> PyResult<()> {
        let (name, load) = (&request.request_id, self.0.get(&request.id));
        let message = match load {
            None => return Ok(()),
            Some(EmptyLoad::Lost) => format!(
                "the load of request '{name}' failed, or the tier forgot it, so its blocks are \
                 empty. Free the request and look it up again"
            ),
            Some(_) => format!(
                "the load of request '{name}' has not ended, so its blocks are empty. Call complete \
                 with its transfer first"
            ),
        };
        Err(request_error(py, message))
    }

    /// Refuses to free blocks that a copy may write now.
    pub(super) fn check_not_copied(&self, py: Python<'_>, request: &PyRequest) -> PyResult<()> {
        if self.0.get(&request.id) != Some(&EmptyLoad::Copying) {
            return Ok(());
        }
        let message = format!(
            "the load of request '{}' is being copied into its blocks. Call complete with its \
             transfer when the copy has ended, then free the request",
            request.request_id
        );
        Err(request_error(py, message))
    }
}
