//! One vLLM manager: one crossing for each of the scheduler's calls.

mod coordinator;
mod inspection;
mod scheduling;
mod tables;
mod worker;

mod construction;

pub(crate) use construction::VllmManager;
