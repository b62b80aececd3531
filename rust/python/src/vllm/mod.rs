//! The engine behind vLLM's interface: reads vLLM's requests, calls the core, and hands out views.
//! Python's `kvoxide.vllm` builds vLLM's classes over what is here.
//!
//! In the order of its layers: each module uses only those below it.

mod pool;
mod queue;
mod rows;

mod manager;

mod sequence;
mod walk;

mod blocks;
mod events;

mod event_keys;

mod engine;

mod state;

mod claims;
mod followed;
mod views;

mod request;

mod reading;

mod block_numbers;
mod errors;
mod hasher;

pub(crate) use block_numbers::VllmBlockNumbers;
pub(crate) use blocks::{VllmBlock, VllmBlocks};
pub(crate) use events::{VllmEventClasses, VllmEvents};
pub(crate) use hasher::VllmBlockHasher;
pub(crate) use manager::VllmManager;
pub(crate) use sequence::VllmBlockSequence;
pub(crate) use walk::{VllmFreeWalk, VllmKeeper, VllmQueueEnd};
