//! The order in which free blocks are recycled.

/// Where freed blocks go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecycleOrder {
    /// Blocks without a hash go to the front of the free queue (vLLM PR 43447).
    #[default]
    UncachedFirst,
    /// Everything goes to the back, as before that PR.
    Fifo,
}
