//! Recurrent states (Mamba, gated delta net, short convolution). A block is the state of a whole
//! prefix, so a hit needs one block only, and the worker finds states by their position in a
//! request's table.
//!
//! The two modes have nothing in common but their sizes, so each is a kind: `none` keeps the
//! running state only, `align` keeps a state wherever a block of tokens ends.

mod none;

mod align;

mod caching;
mod planned_table;

mod hit;
mod table;

mod checkpoint;

pub(crate) use align::AlignedStates;
pub(super) use align::MAMBA;
pub use checkpoint::Checkpoint;
pub(super) use hit::longest_hit;
pub(super) use none::MAMBA_NONE;
pub(super) use none::RunningState;
pub use table::TableRecord;
