//! The releases of vLLM that the tier can follow.

/// The release of vLLM whose decisions the tier makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VllmVersion {
    /// LRU orders chunks by when they were stored or a request with them ended, and failed stores
    /// tell nothing.
    V0_32,
    /// Chunks of a running request share a rank, ordered by position.
    #[default]
    V0_33,
}
