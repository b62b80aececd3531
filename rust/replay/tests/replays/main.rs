//! Replays of traces: small ones with a known outcome, and random ones against plain loops.

mod clairvoyant;
mod losses;
mod outputs;
mod priorities;
mod runs;
mod serving;
