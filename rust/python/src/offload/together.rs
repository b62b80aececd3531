//! A manager that decides together with a tier.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvoxide_core::host::Horizon;

use crate::vllm::Engine;

/// A manager that decides together with the planner's tier.
pub(super) struct Together {
    pub(super) engine: Arc<Engine>,
    horizon: Mutex<Horizon>,
}

impl Together {
    pub(super) fn of(engine: Arc<Engine>) -> Self {
        Self { engine, horizon: Mutex::default() }
    }

    /// Returns how many of the blocks that leave the pool next are stored.
    pub(super) fn horizon(&self) -> MutexGuard<'_, Horizon> {
        self.horizon.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
