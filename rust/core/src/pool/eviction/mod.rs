//! Which free block is evicted next: the free queue and the pinned tier as in vLLM, and the lists of
//! the adaptive policy.

pub(crate) mod adaptive;
pub(crate) mod by_hand;
pub(crate) mod claiming;
pub(crate) mod graded;
pub(crate) mod nearness;
pub(crate) mod order;
pub(crate) mod queue_edits;
pub(crate) mod queue_walk;
pub(crate) mod recycle;
pub(crate) mod value;
