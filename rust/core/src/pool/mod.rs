//! The block pool: who holds which block, which keys find it, and in which order free blocks are
//! recycled.
//!
//! Between calls: every block but the null block is in use (it has references), in the free queue,
//! in the pinned tier or in the lists of the adaptive order, never in two of them; the index finds exactly the keys that blocks have;
//! pinned blocks are cached.

mod adaptive;
mod block_pool;
mod by_hand;
mod census;
mod chains;
mod claiming;
mod cursor;
mod event;
mod free_queue;
mod free_walk;
mod full_blocks;
mod further_keys;
mod grade;
mod graded;
mod index;
mod keys;
mod linking;
mod links;
mod nearness;
mod observation;
mod order;
mod present;
mod queue_edits;
mod record_writer;
mod records;
mod recycle;
mod removal_log;
mod run;
mod shared_bits;
mod states;
mod usage;

pub use adaptive::{Adaptive, Claim, Mark, Ordering, SampleCounts, Standing};
pub use block_pool::{AdaptiveOrder, BlockPool};
pub use census::Census;
pub use chains::{Chains, Link, NO_SEGMENT, Path, Slot};
pub use cursor::ChainCursor;
pub use event::{Event, StoredEvent};
pub use full_blocks::FullBlocks;
pub use grade::Grade;
pub use graded::Parting;
pub use index::{HashIndex, KeyLayout};
pub use nearness::Nearness;
pub use observation::Observation;
pub use order::RecycleOrder;
pub use queue_edits::QueueEnd;
pub use removal_log::{LogPosition, RemovalLog, RemovedKey};
pub use states::{BlockStates, MAX_REFERENCES};
