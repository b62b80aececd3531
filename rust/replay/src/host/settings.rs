//! The settings of CPU memory.

use kvoxide_core::Error;
use kvoxide_core::host::HostPolicy;

use crate::clock::Nanoseconds;

/// The CPU memory of one instance, and vLLM's settings of it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostMemory {
    /// The number of chunks. A chunk has room for one block of any group.
    pub num_chunks: usize,
    /// The number of bytes that a chunk takes.
    pub chunk_bytes: u64,
    /// The order of eviction.
    pub policy: HostPolicy,
    /// The number of offers of a chunk before it is stored. Below 2, offers are not counted.
    pub store_threshold: u32,
    /// The most chunks whose offers are counted.
    pub max_tracker_size: usize,
    /// Whether only blocks of prompts are stored. [`HostPolicy::Adaptive`] also stores others.
    pub prompt_only: bool,
    /// The link from CPU memory to the GPU.
    pub load: Link,
    /// The link from the GPU to CPU memory.
    pub store: Link,
}

/// One direction of the link between GPU and CPU memory. One transfer at a time uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second.
    pub bandwidth: f64,
    /// The seconds that each transfer takes in addition.
    pub latency: f64,
}

/// The most seconds that a transfer can take in addition to its bytes: one day.
const MAX_LATENCY: f64 = 86_400.0;
const MIN_BANDWIDTH: f64 = 1e3;
const MAX_BANDWIDTH: f64 = 1e15;

impl Default for Link {
    /// Returns a link with about half of the bandwidth of 16 lanes of PCIe 5.0.
    fn default() -> Self {
        Self { bandwidth: 25e9, latency: 200e-6 }
    }
}

impl Link {
    /// Returns the duration of a transfer.
    pub(super) fn duration(&self, bytes: u64) -> Nanoseconds {
        ((self.latency + bytes as f64 / self.bandwidth) * 1e9).round() as Nanoseconds
    }

    fn check(&self, name: &str) -> Result<(), Error> {
        let Self { bandwidth, latency } = *self;
        if !(MIN_BANDWIDTH..=MAX_BANDWIDTH).contains(&bandwidth) {
            return Err(Error::Config(format!(
                "{name}_bandwidth is {bandwidth} bytes per second; it can be {MIN_BANDWIDTH:e} to \
                 {MAX_BANDWIDTH:e}, such as 25e9"
            )));
        }
        if !(0.0..=MAX_LATENCY).contains(&latency) {
            return Err(Error::Config(format!(
                "{name}_latency is {latency} s; it can be 0 to {MAX_LATENCY}"
            )));
        }
        Ok(())
    }
}

impl HostMemory {
    /// Returns vLLM's default settings.
    pub fn new(num_chunks: usize, chunk_bytes: u64) -> Self {
        Self {
            num_chunks,
            chunk_bytes,
            policy: HostPolicy::Lru,
            store_threshold: 0,
            max_tracker_size: 64_000,
            prompt_only: true,
            load: Link::default(),
            store: Link::default(),
        }
    }

    /// Checks the settings.
    pub fn check(&self) -> Result<(), Error> {
        if self.num_chunks == 0 {
            return Err(Error::Config(
                "the CPU memory has no room for a chunk; use more of it, or none".into(),
            ));
        }
        if self.num_chunks > kvoxide_core::host::MAX_CHUNKS {
            return Err(Error::Config(format!(
                "the CPU memory has {} chunks; the limit is {}, so use less of it",
                self.num_chunks,
                kvoxide_core::host::MAX_CHUNKS
            )));
        }
        if self.chunk_bytes == 0 {
            return Err(Error::Config("chunk_bytes is 0; it must be at least 1".into()));
        }
        if self.policy == HostPolicy::Adaptive && self.store_threshold >= 2 {
            return Err(Error::Config(format!(
                "store_threshold is {}; leave it at 0 with eviction_policy \"adaptive\". It stores a \
                 block when the pool is about to evict it",
                self.store_threshold
            )));
        }
        if self.max_tracker_size == 0 {
            return Err(Error::Config("max_tracker_size is 0; it must be at least 1".into()));
        }
        self.load.check("load")?;
        self.store.check("store")
    }
}
