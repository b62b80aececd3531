//! Fast paths, compared with naive ones on random input.

mod prefix_trie;
mod reachable_blocks;
mod repeated_look_ups;
mod runs_under_adaptive_retention;
mod window_search;
