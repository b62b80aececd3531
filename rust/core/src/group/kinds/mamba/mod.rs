//! Recurrent states (Mamba, gated delta net, short convolution). A block is the state of a whole
//! prefix, so a hit needs only one block. The worker finds states by their position in a request's
//! table.
//!
//! The two modes share only their sizes, so each mode is a kind. `none` keeps only the running
//! state. `align` keeps a state wherever a block of tokens ends.

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
