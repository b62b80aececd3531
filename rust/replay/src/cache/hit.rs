//! A hit of a request, in the pool and in CPU memory, and the slots that the request needs.

use std::sync::Arc;

use kvoxide_core::{Manager, PrefixHit, RequestView};

use crate::host::{HostConnector, HostTokens};

/// The slots that a request needs, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The number of tokens to compute in this step.
    pub num_new_tokens: usize,
    /// The number of additional slots for draft tokens.
    pub num_lookahead_tokens: usize,
    /// Whether a waiting request is refused if its whole sequence does not fit now.
    pub whole_must_fit: bool,
    /// Whether other requests run.
    pub has_running: bool,
}

impl Slots {
    /// Returns slots for a scheduler that admits a request only if all of it fits.
    pub fn of(num_new_tokens: usize) -> Self {
        Self { num_new_tokens, num_lookahead_tokens: 0, whole_must_fit: true, has_running: true }
    }
}

/// A hit.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The length of the hit, in tokens, including tokens in CPU memory.
    pub length: usize,
    /// The number of these tokens that are loaded from CPU memory.
    pub num_loaded: usize,
    /// Whether the request has to wait for transfers from or to CPU memory.
    pub is_later: bool,
    /// The tokens after the hit whose full attention is in GPU and CPU memory together, but whose
    /// window or state is in neither.
    pub without_tail: usize,
    /// The end of a shared prefix whose tail is not cached; 0 if there is none.
    pub shared_prefix_boundary: usize,
    /// The number of tokens whose full-attention blocks are cached.
    pub(super) full_length: usize,
    pub(super) blocks: Option<PrefixHit>,
}

impl Hit {
    /// Returns an empty hit for the same cached blocks of full attention.
    pub fn dropped(self) -> Self {
        Self { length: 0, num_loaded: 0, blocks: None, ..self }
    }

    pub(super) fn of_pool(
        length: usize,
        shared_prefix_boundary: usize,
        full_length: usize,
        blocks: Option<PrefixHit>,
    ) -> Self {
        Self {
            length,
            num_loaded: 0,
            is_later: false,
            without_tail: 0,
            shared_prefix_boundary,
            full_length,
            blocks,
        }
    }

    /// Returns the number of tokens that the pool has.
    pub fn num_local(&self) -> usize {
        self.length - self.num_loaded
    }

    /// Returns the hit of a request that does not read the cache.
    pub fn none() -> Self {
        Self::of_pool(0, 0, 0, None)
    }

    /// Adds the tokens that CPU memory has after the pool's hit. vLLM asks for tokens after the last
    /// whole block of a hit.
    pub(super) fn with_host(
        self,
        host: &mut HostConnector,
        manager: &Manager,
        request: &RequestView<'_>,
    ) -> Result<Self, kvoxide_core::Error> {
        let num_partial = self.length % manager.scheduler_block_size();
        let num_whole = self.length - num_partial;
        let found = host.look_up(manager, request, num_whole);
        let HostTokens { num_tokens, is_later, without_tail } = found;
        if num_tokens <= num_partial {
            return Ok(Self { is_later, without_tail, ..self });
        }
        let blocks = match self.blocks {
            Some(hit) if num_partial > 0 => {
                let blocks = Arc::new(manager.truncated(&hit.blocks, num_whole)?);
                Some(PrefixHit { blocks, length: num_whole, ..hit })
            }
            blocks => blocks,
        };
        let length = num_whole + num_tokens;
        let local = blocks.as_ref().map_or(&[][..], |hit| &hit.blocks);
        let attached = host.attached(manager, request, local, (num_whole, length));
        let blocks = match attached {
            Some(attached) => Some(PrefixHit {
                blocks: Arc::new(attached),
                length: num_whole,
                shared_prefix_boundary: self.shared_prefix_boundary,
            }),
            None => blocks,
        };
        Ok(Self { length, num_loaded: num_tokens, is_later, without_tail, blocks, ..self })
    }
}
