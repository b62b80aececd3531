//! Replays request traces through the block manager, with a model of vLLM's scheduler.
//!
//! [`run`] replays a trace.
//!
//! [`trace`] reads requests, and `tokens` hashes them. [`scheduler`] decides what runs in a step,
//! in the chunks that recurrent states need, and allocates blocks in a `cache`. [`report`] has the
//! counts. [`losses`] has the reasons why computed tokens were not hit, [`outcomes`] what happened
//! to each prompt token, and [`clairvoyant`] an upper bound for every policy.
//!
//! [`baselines`] are simple eviction policies to compare with.
//!
//! [`host`] is CPU memory in addition to the pool.
//!
//! In [`serving`] requests arrive over time, a [`router`] sends them to instances, and a [`clock`]
//! models the duration of steps. [`packed`] encodes traces and reports as bytes for other
//! processes.

mod active_request;
pub mod baselines;
mod cache;
mod chunks;
pub mod clairvoyant;
pub mod clock;
mod conversation;
mod histogram_counts;
pub mod host;
pub mod id_width;
pub mod losses;
mod no_op_steps;
pub mod outcomes;
pub mod packed;
mod radix_tree;
mod replay;
pub mod report;
pub mod router;
mod samples;
pub mod scheduler;
pub mod serving;
mod tokens;
pub mod trace;

pub use replay::run;
pub use report::Report;
pub use scheduler::{Control, Settings, Stopped};
pub use trace::{LineError, Trace};
