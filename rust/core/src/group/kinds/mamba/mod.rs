//! Recurrent state (Mamba, gated delta net, short convolution). A block is the state of a whole
//! prefix, so a hit needs one block alone, and the worker finds states by their position in a
//! request's row.
//!
//! The two modes differ in every joint and in the sizes they take, so each is a kind: `none` keeps
//! the running state alone, `align` keeps one wherever a block of tokens ends.

mod ahead;
mod align;
mod caching;
mod checkpoint;
mod hit;
mod none;
mod row;

pub use align::AlignedStates;
pub(super) use align::MAMBA;
pub use checkpoint::Checkpoint;
pub(super) use hit::{longest as longest_hit, mask as retention_mask};
pub(super) use none::MAMBA_NONE;
pub use none::RunningState;
