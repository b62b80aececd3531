//! Fast paths against slow ones that are plainly right, on random input.

mod linked_chains;
mod reachable_blocks;
mod repeated_look_ups;
mod rows_in_adaptive_order;
mod window_search;
