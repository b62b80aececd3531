//! The retention policy: which blocks stay cached, and in which order they are evicted.

use crate::error::{Error, Result};
use crate::pool::RecycleOrder;

/// The retention policy of a manager. With [`Retention::Standard`], its mechanisms can be combined
/// freely. They are known from vLLM and other projects. The default is what every supported release
/// of vLLM does by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether the following fields decide, or adaptive retention.
    pub retention: Retention,
    /// The place of released blocks in the free queue.
    pub recycle_order: RecycleOrder,
    /// Whether sliding-window blocks that can never serve a hit stay uncached (vLLM PR 42258).
    pub reachable_block_mask: bool,
    /// Tokens between the boundaries whose sliding-window tail is cached (vLLM PR 43447). `None`
    /// means every aligned boundary. 0, the default, means only replay and shared-prefix boundaries.
    pub retention_interval: Option<usize>,
    /// The number of blocks that must leave a window at once so that the window is pinned (vLLM PR
    /// 40676). `None` pins nothing.
    pub pin_min_drop_size: Option<usize>,
    /// The most free blocks with a priority above the default, under adaptive retention.
    pub protected_share: ProtectedShare,
}

/// A share of the pool, from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedShare(u32);

impl ProtectedShare {
    const WHOLE: u32 = 1_000_000;

    /// Returns a share from 0 to 1. Returns [`Error::Config`] for any other value.
    pub fn new(share: f64) -> Result<Self> {
        if (0.0..=1.0).contains(&share) {
            return Ok(Self((share * f64::from(Self::WHOLE)).round() as u32));
        }
        Err(Error::Config(format!(
            "protected_share is {share}; it can be 0 (no block is kept for its priority) to 1 (the \
             whole pool)"
        )))
    }

    /// Returns the share, from 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// Returns this share of a number of blocks.
    pub fn of(self, num_blocks: usize) -> usize {
        (num_blocks as u64 * u64::from(self.0) / u64::from(Self::WHOLE)) as usize
    }
}

impl Default for ProtectedShare {
    fn default() -> Self {
        Self(Self::WHOLE / 8)
    }
}

/// The mechanism that decides which blocks stay cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// The fields of a [`Policy`] decide, as in vLLM.
    #[default]
    Standard,
    /// The value of blocks and their observed reuse decide; see [`crate::pool::Adaptive`].
    Adaptive,
}

impl Retention {
    /// All mechanisms, the default first.
    pub const ALL: [Self; 2] = [Self::Standard, Self::Adaptive];

    /// Returns the name in Python and in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Adaptive => "adaptive",
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            recycle_order: RecycleOrder::default(),
            reachable_block_mask: true,
            retention_interval: Some(0),
            pin_min_drop_size: None,
            protected_share: ProtectedShare::default(),
        }
    }
}

impl Policy {
    /// Returns adaptive retention, which needs no other option.
    pub fn adaptive() -> Self {
        Self { retention: Retention::Adaptive, ..Self::every_tail() }
    }

    /// Returns vLLM's default policy, but with the tail at every aligned boundary cached.
    pub fn every_tail() -> Self {
        Self { retention_interval: None, ..Self::default() }
    }

    /// The retention interval with the name `auto`, in tokens (vllm-ascend PR 9684).
    pub const AUTO_RETENTION_INTERVAL: usize = 32_768;

    /// The default of `pin_min_drop_size`. If fewer blocks leave a window at once, they are a
    /// decode tail without value (vLLM PR 40676).
    pub const DEFAULT_PIN_MIN_DROP_SIZE: usize = 16;

    /// Returns whether cached blocks that leave a window are pinned, too. With an interval, only
    /// tails at its boundaries are cached, and without these tails pinned full-attention blocks
    /// cannot be hit. So these tails are pinned even if few blocks leave at once.
    pub(in crate::retention) fn pins_skipped_tails(&self) -> bool {
        self.pin_min_drop_size.is_some() && self.retention_interval.is_some()
    }

    /// Checks each field, and that no two fields contradict each other.
    pub fn check_parts(&self) -> Result<()> {
        if self.pin_min_drop_size == Some(0) {
            return Err(Error::Config(
                "pin_min_drop_size is 0; it must be at least 1 block, or None to disable pinning"
                    .into(),
            ));
        }
        if self.retention == Retention::Standard
            && self.protected_share != ProtectedShare::default()
        {
            return Err(Error::Config(
                "protected_share needs adaptive retention; leave it out, or set \
                 retention='adaptive'"
                    .into(),
            ));
        }
        let Self { protected_share, .. } = *self;
        if self.retention == Retention::Adaptive
            && *self != (Self { protected_share, ..Self::adaptive() })
        {
            return Err(Error::Config(
                "adaptive retention itself decides which blocks stay and which are recycled first. \
                 Leave recycle_order, reachable_block_mask, retention_interval and \
                 pin_min_drop_size at their defaults"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Returns the policy that is in effect for a model: without a sliding window or states, every
    /// block is cached. `has_sliding_window` is true if a group has a sliding window or states.
    pub(crate) fn in_effect(self, has_sliding_window: bool) -> Self {
        let retention_interval = self.retention_interval.filter(|_| has_sliding_window);
        Self { retention_interval, ..self }
    }

    /// Checks the policy for a model. `has_sliding_window` is true if a group has a sliding window
    /// or states. The scheduler block size is in tokens.
    pub(crate) fn validate(
        &self,
        has_sliding_window: bool,
        scheduler_block_size: usize,
    ) -> Result<()> {
        self.check_parts()?;
        // As in vLLM, an interval of 0 is allowed for every model.
        let interval = self.retention_interval.filter(|&interval| interval > 0);
        let Some(interval) = interval else { return Ok(()) };
        if !has_sliding_window {
            return Err(Error::Config(format!(
                "retention_interval is {interval}, but no KV cache group has a sliding window, \
                 so it would have no effect. Set it to 0"
            )));
        }
        if interval % scheduler_block_size != 0 {
            return Err(Error::Config(format!(
                "retention_interval is {interval}; it must be 0 or a multiple of the scheduler \
                 block size {scheduler_block_size}"
            )));
        }
        Ok(())
    }
}
