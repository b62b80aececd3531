//! Traces that are played: small ones whose outcome is known, and random ones beside plain loops.

mod bound;
mod claims;
mod losses;
mod outputs;
mod runs;
mod serving;
