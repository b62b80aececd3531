//! The engine behind vLLM's interface: reads vLLM's requests, calls the core, and hands out views.
//!
//! Python's `kvoxide.vllm` builds vLLM's classes over what is here.

mod errors;
pub mod hasher;
pub mod manager;
mod mirror;
mod pool;
mod state;
pub mod views;
