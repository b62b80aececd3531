//! GPU and CPU memory together, for `adaptive`: a load takes from the pool the blocks that it has,
//! and blocks are stored before the pool evicts them.
//!
//! - [`store_wait`]: how long a load waits for stores.
//! - [`horizon`]: how many of the blocks that leave the pool next are stored.
//! - [`look_up`]: a look-up in both.
//! - [`attached`]: the blocks of the pool that a load attaches, and the chunks that it brings.
//! - [`keys`]: the keys of a request, found in pool and tier.

mod store_wait;

mod horizon;

mod look_up;

mod attached;

mod keys;

pub use attached::attached;
pub use horizon::Horizon;
pub use keys::{ChunkKeys, HashKeys};
pub use store_wait::StoreWait;
