//! A model of vLLM's scheduler: the calls that it makes to a manager, step by step.
//!
//! A step first serves the running requests in order, until its budget is used up. Each request
//! gets its missing tokens: one in a decode, a chunk in a prefill. If too few blocks are free, the
//! newest running request is preempted: it releases its blocks and waits again, first in line. If
//! no request was preempted, waiting requests are admitted in order.
//!
//! With CPU memory, a request whose hit is loaded gets blocks at once, and runs when its load has
//! ended.
//!
//! Generated tokens that the trace does not know are unique. A request ends when its last token has
//! a slot. In models with recurrent states, chunks end where states are cached.

mod admission;
mod following;
mod instance;
mod loads;
mod run;
mod settings;
mod setup;
mod step_clock;

pub(crate) use following::Follower;
pub(crate) use run::Run;
pub use settings::{Control, Rules, Settings, Stopped};
pub(crate) use setup::Setup;
