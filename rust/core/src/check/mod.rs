//! Checks a whole manager: its invariants, and a digest of its state.

mod digest;
mod invariant;

pub use digest::digest;
pub use invariant::{check, check_direct_writes};
