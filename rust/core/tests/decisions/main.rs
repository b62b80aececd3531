//! Decisions that can be worked out by hand: which blocks, which hits, in which order, which events.

mod admission;
mod events;
mod hits;
mod kinds;
mod order;
mod partial_tail;
mod pinned_tier;
mod pool;
mod questions;
mod refusals;
mod small;
mod state_rows;
mod states;
mod windows;
mod zeroing;
