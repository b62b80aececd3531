//! The engine for vLLM's interface: it reads vLLM's requests, calls the core, and returns views.
//! Python's `kvoxide.vllm` builds vLLM's classes over this engine.
//!
//! The modules are in the order of their layers: each module uses only the modules below it.

mod pool;
mod queue;
mod table_edits;

mod manager;

mod queue_walk;
mod sequence;

mod blocks;
mod events;

mod block;

mod event_keys;

mod together;

mod engine;

mod call_times;
mod state;

mod block_objects;
mod hints;
mod synced;

mod request;

mod attributes;

mod block_numbers;
mod errors;
mod hasher;

pub(crate) use block::VllmBlock;
pub(crate) use block_numbers::VllmBlockNumbers;
pub(crate) use blocks::VllmBlocks;
pub(crate) use engine::Engine;
pub(crate) use events::{VllmEventClasses, VllmEvents};
pub(crate) use hasher::VllmBlockHasher;
pub(crate) use hints::VllmGrantedHints;
pub(crate) use manager::VllmManager;
pub(crate) use queue_walk::{VllmFreeWalk, VllmPoolCloser, VllmQueueEnd};
pub(crate) use sequence::VllmBlockSequence;
pub(crate) use together::keys_of_blocks;
