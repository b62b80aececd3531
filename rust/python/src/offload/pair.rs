//! The manager that decides together with a tier, for servers without vLLM.

use kvoxide_core::host::{Horizon, HostSearch};

use super::transfers::Transfers;
use crate::standalone::FollowedManager;

/// The partner of a tier.
pub(super) enum Partner {
    /// No manager: the policy is vLLM's, or vLLM's connector decides.
    Unneeded,
    /// The policy is `adaptive`, and there is no manager yet.
    Missing,
    /// A manager.
    Manager(Box<Pair>),
}

/// A manager that decides together with a tier.
pub(super) struct Pair {
    pub(super) manager: FollowedManager,
    pub(super) search: HostSearch,
    pub(super) horizon: Horizon,
    pub(super) transfers: Transfers,
}

impl Pair {
    pub(super) fn new((manager, search): (FollowedManager, HostSearch)) -> Self {
        let (horizon, transfers) = (Horizon::default(), Transfers::default());
        Self { manager, search, horizon, transfers }
    }
}
