//! Decisions that can be worked out by hand: which blocks, which hits, in which order, which events.

mod adaptive;
mod admission;
mod chunk_states;
mod claims;
mod connector_room;
mod declared;
mod events;
mod hits;
mod hits_inside;
mod junctions;
mod kinds;
mod order;
mod partial_tail;
mod pinned_tier;
mod pool;
mod questions;
mod refusals;
mod report;
mod room;
mod row_refusals;
mod small;
mod state_rows;
mod states;
mod windows;
mod written;
mod zeroing;
