//! What is known of each block: its references and flags, its neighbours in a list, and the hash
//! that it is cached under. Nothing here knows a policy.
//!
//! Blocks that are allocated one after another mostly have ids that go up or down by one. Such a
//! run of blocks is handled as one wherever the same is to be done to all of them.

pub(crate) mod ends;
pub(crate) mod flags;
pub(crate) mod links;
pub(crate) mod list;
pub(crate) mod prefault;
pub(crate) mod record_writer;
pub(crate) mod records;
pub(crate) mod run;
pub(crate) mod states;
