//! Plays request traces through the block manager as a scheduler would.
//!
//! [`trace`] reads requests, [`tokens`] hashes them, [`scheduler`] decides what runs in a step, in
//! the [`chunks`] that recurrent states need, and asks a [`cache`] for blocks, and [`report`] counts
//! what came of it. [`losses`] says why what had been computed was not hit, and [`bound`] finds what
//! could have come of it.
//! In [`serving`] requests arrive at their times and go to several instances, as a [`router`]
//! says, while a [`clock`] runs. Traces and reports travel between processes [`packed`].

mod active;
pub mod bound;
pub mod cache;
pub mod chunks;
pub mod clock;
pub mod conversation;
mod counts;
pub mod id_width;
pub mod losses;
pub mod packed;
mod prompt_tree;
pub mod quiet;
pub mod report;
pub mod router;
pub mod scheduler;
pub mod serving;
pub mod tokens;
pub mod trace;

pub use report::Report;
pub use scheduler::{Control, Settings, Stopped, run};
pub use trace::{LineError, Trace};
