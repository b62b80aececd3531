//! Checks of arguments before the core is called. They find bad input that the core could not
//! distinguish from good input, and that vLLM's scheduler never passes.

use pyo3::prelude::*;

use kvoxide_core::{AllocateArgs, Error, GroupBlocks, GroupId, RequestId};

use super::request::PyRequest;
use super::state::State;
use crate::ffi::{hash_error, request_error, to_py};

impl State {
    /// Checks that no other request has this request's id and that its hashes have the length in
    /// use.
    pub(super) fn check_request(&self, py: Python<'_>, request: &PyRequest) -> PyResult<()> {
        let holder = self.names.get(&request.request_id);
        if holder.is_some_and(|&id| id != request.id) {
            return Err(to_py(py, &Error::DuplicateRequest(request.request_id.clone())));
        }
        self.check_hashes(py, request)?;
        let settled = request.num_tokens + request.num_in_flight_tokens;
        if request.num_computed_tokens > settled {
            let message = format!(
                "request '{}' has {} computed tokens but only {settled} tokens (in-flight ones \
                 included)",
                request.request_id, request.num_computed_tokens
            );
            return Err(request_error(py, message));
        }
        Ok(())
    }

    fn check_hashes(&self, py: Python<'_>, request: &PyRequest) -> PyResult<()> {
        let expected = self.core.hash_block_size();
        if let Some(given) = request.hash_block_size.filter(|&given| given != expected) {
            let message = format!(
                "the request hashes every {given} tokens; this manager's hash_block_size is \
                 {expected}"
            );
            return Err(hash_error(py, message));
        }
        if request.hashes.len() * expected > request.num_tokens {
            let message = format!(
                "the request has {} block hashes of {expected} tokens, more than its {} tokens can \
                 fill",
                request.hashes.len(),
                request.num_tokens
            );
            return Err(hash_error(py, message));
        }
        if let Some(known) = self.hash_len
            && !request.hashes.is_empty()
            && request.hash_len != known
        {
            let message = format!(
                "the request's block hashes have {} bytes, but earlier ones have {known}. All \
                 requests of a manager must use the same hash",
                request.hash_len
            );
            return Err(hash_error(py, message));
        }
        Ok(())
    }

    /// Returns the number of a request, or an `UnknownRequestError` unless it has blocks.
    pub(super) fn held(&self, py: Python<'_>, request: &PyRequest) -> PyResult<RequestId> {
        self.check_request(py, request)?;
        self.request_id(py, &request.request_id)
    }

    /// Refuses arguments that vLLM's scheduler never passes and that the core would accept.
    pub(super) fn check_allocation(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        args: &AllocateArgs<'_>,
    ) -> PyResult<()> {
        self.check_request(py, request)?;
        self.loads.check_filled(py, request)?;
        let adopted = args.num_new_computed_tokens + args.num_external_computed_tokens;
        let settled = request.num_tokens + request.num_in_flight_tokens;
        if request.num_computed_tokens + adopted > settled {
            let message = format!(
                "{adopted} computed tokens after the first {} exceed the request's {settled} tokens",
                request.num_computed_tokens
            );
            return Err(request_error(py, message));
        }
        if request.num_computed_tokens > 0 && !self.core.knows(request.id) {
            let message = format!(
                "request '{}' has {} computed tokens but holds no blocks. Set num_computed_tokens \
                 to 0 when a request is freed or preempted",
                request.request_id, request.num_computed_tokens
            );
            return Err(request_error(py, message));
        }
        let max_len = self.core.config().max_model_len;
        let num_slots = request.num_computed_tokens + adopted + args.num_new_tokens;
        if num_slots > max_len {
            let message = format!(
                "slots for {num_slots} tokens were requested, more than max_model_len {max_len}"
            );
            return Err(request_error(py, message));
        }
        self.check_encoder_tokens(py, args.num_encoder_tokens)?;
        self.check_load(py, args)?;
        self.check_hit(py, args)
    }

    /// Checks that blocks of a load from the tier are cached when the load has ended.
    fn check_load(&self, py: Python<'_>, args: &AllocateArgs<'_>) -> PyResult<()> {
        let is_load = self.noted.is_some() && args.num_external_computed_tokens > 0;
        if !is_load || args.delay_cache_blocks {
            return Ok(());
        }
        let message = "a load from the tier needs delay_cache_blocks=True; call cache_blocks when \
                       the load has ended";
        Err(request_error(py, message.into()))
    }

    fn check_encoder_tokens(&self, py: Python<'_>, num_encoder_tokens: usize) -> PyResult<()> {
        let mut kinds = self.core.groups().iter().map(|group| &*group.spec.kind);
        if num_encoder_tokens == 0 || kinds.any(|kind| kind == "cross_attention") {
            return Ok(());
        }
        let message = format!(
            "num_encoder_tokens is {num_encoder_tokens}; no group of this manager holds encoder \
             tokens, so it must be 0"
        );
        Err(request_error(py, message))
    }

    /// Checks that the blocks of a hit cover the number of tokens that the caller gives.
    pub(super) fn check_hit(&self, py: Python<'_>, args: &AllocateArgs<'_>) -> PyResult<()> {
        // A connector that loads a suffix also loads the states at its start. Therefore the hits of
        // other groups may end before the hit of full attention.
        let may_lag = args.num_external_computed_tokens > 0
            && self.core.groups().iter().any(|group| group.is_state);
        let groups = self.core.groups().iter();
        for (i, group) in groups.enumerate().filter(|(_, group)| group.is_cacheable) {
            let blocks = args.new_computed_blocks.get(i).map_or(0, GroupBlocks::len);
            let covered = blocks * group.block_size;
            // A hit may end inside a block if the manager has such hits.
            let needed = match group.has_partial_hits {
                true => args.num_new_computed_tokens.div_ceil(group.block_size),
                false => args.num_new_computed_tokens / group.block_size,
            };
            let is_whole =
                group.has_partial_hits || args.num_new_computed_tokens == needed * group.block_size;
            let lags = may_lag && blocks < needed;
            if !is_whole || blocks != needed && !lags {
                let message = format!(
                    "num_new_computed_tokens is {}, but new_computed_blocks covers {covered} \
                     tokens in group {i}",
                    args.num_new_computed_tokens
                );
                return Err(request_error(py, message));
            }
        }
        Ok(())
    }

    /// Checks that a group id is known.
    pub(super) fn group_id(&self, py: Python<'_>, group: i64) -> PyResult<GroupId> {
        let num_groups = self.core.config().groups.len();
        let known = GroupId::try_from(group).ok().filter(|&id| usize::from(id) < num_groups);
        known.ok_or_else(|| unknown_group(py, group, num_groups))
    }
}

/// Returns the error for an unknown group id.
pub(super) fn unknown_group(py: Python<'_>, group: i64, num_groups: usize) -> PyErr {
    let last = num_groups as i64 - 1;
    request_error(py, format!("group id {group} is unknown; ids are 0 to {last}"))
}
