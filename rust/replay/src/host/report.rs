//! Counts of a host tier.

use serde::{Deserialize, Serialize};

/// The counts of the CPU memory of one instance, or of all instances together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// The number of chunks.
    pub capacity: usize,
    /// The number of bytes per chunk.
    pub chunk_bytes: u64,
    /// The number of chunks that were stored.
    pub stored: u64,
    /// The number of stored chunks of windows and states.
    pub stored_tails: u64,
    /// The number of chunks that were loaded.
    pub loaded: u64,
    /// The number of loaded chunks whose blocks the pool had too.
    pub loaded_twice: u64,
    /// The number of loads.
    pub loads: u64,
    /// The number of tokens that loads brought, also the loads of preempted requests.
    pub loaded_tokens: u64,
    /// The number of chunks that were evicted.
    pub evicted: u64,
    /// The number of chunks that were evicted before any load.
    pub never_loaded: u64,
    /// The number of offers for which there was no room.
    pub refused: u64,
    /// The number of chunks that were not stored, because they were offered too seldom.
    pub skipped: u64,
    /// The number of chunks with a key, summed over samples.
    pub sampled: u64,
    /// The number of these chunks whose blocks the pool had too.
    pub sampled_twice: u64,
    /// The number of prompt tokens whose full attention was in GPU and CPU memory together, but
    /// whose window or state was in neither.
    pub without_tail: u64,
    /// The time in nanoseconds that transfers took, from GPU to CPU memory.
    pub store_time: u64,
    /// The time in nanoseconds that transfers took, from CPU memory to the GPU.
    pub load_time: u64,
    /// The time in nanoseconds that steps waited for stores of blocks that they needed.
    pub fence_time: u64,
}

impl HostReport {
    /// Adds the counts of another instance.
    pub fn add(&mut self, other: &Self) {
        self.capacity += other.capacity;
        self.chunk_bytes = self.chunk_bytes.max(other.chunk_bytes);
        self.stored += other.stored;
        self.stored_tails += other.stored_tails;
        self.loaded += other.loaded;
        self.loaded_twice += other.loaded_twice;
        self.loads += other.loads;
        self.loaded_tokens += other.loaded_tokens;
        self.evicted += other.evicted;
        self.never_loaded += other.never_loaded;
        self.refused += other.refused;
        self.skipped += other.skipped;
        self.sampled += other.sampled;
        self.sampled_twice += other.sampled_twice;
        self.without_tail += other.without_tail;
        self.store_time += other.store_time;
        self.load_time += other.load_time;
        self.fence_time += other.fence_time;
    }

    /// Returns the share of stored chunks whose blocks the pool had too, if the tier was sampled.
    pub fn twice_share(&self) -> Option<f64> {
        (self.sampled > 0).then(|| self.sampled_twice as f64 / self.sampled as f64)
    }
}
