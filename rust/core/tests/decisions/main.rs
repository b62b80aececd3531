//! Decisions that can be worked out by hand: blocks, hits, the order of eviction, events.

mod adaptive;
mod admission;
mod capacity;
mod chunk_states;
mod declarations;
mod direct_writes;
mod events;
mod external_tokens;
mod hits;
mod kinds;
mod order;
mod partial_hits;
mod partial_tail;
mod pinned_tier;
mod pool;
mod priorities;
mod questions;
mod refusals;
mod refused_state_steps;
mod report;
mod shared_prefix_boundaries;
mod small;
mod state_tables;
mod states;
mod windows;
mod zeroing;
