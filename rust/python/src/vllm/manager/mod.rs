//! The engine's calls for one vLLM manager: one crossing from Python for each call of the
//! scheduler.

mod coordinator;
mod measures;
mod scheduling;
mod switch;
mod tables;
mod worker;

mod construction;

pub(crate) use construction::VllmManager;
