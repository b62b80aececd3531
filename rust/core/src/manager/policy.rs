//! Which blocks are kept and in which order they are recycled: the retention mechanisms of the
//! field as values of one [`Policy`]. They combine freely.

use crate::error::{Error, Result};
use crate::pool::RecycleOrder;

/// The retention policy of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which of the mechanisms, the ones below or the one that needs no option.
    pub retention: Retention,
    /// Where freed blocks go.
    pub recycle_order: RecycleOrder,
    /// Leave sliding-window blocks that can never serve a hit out of the cache (vLLM PR 42258).
    pub reachable_block_mask: bool,
    /// Tokens between the boundaries whose sliding-window tail is cached (vLLM PR 43447): `None`
    /// for every aligned boundary, 0 for replay and shared-prefix boundaries alone.
    pub retention_interval: Option<usize>,
    /// Blocks that a window drop must have to pin the window (vLLM PR 40676); `None` is off.
    pub pin_min_drop_size: Option<usize>,
    /// With adaptive retention, the blocks that wait above the default priority, at most.
    pub protected_share: ProtectedShare,
}

/// A share of the pool, from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedShare(u32);

impl ProtectedShare {
    const WHOLE: u32 = 1_000_000;

    /// A share from 0 to 1.
    pub fn new(share: f64) -> Result<Self> {
        if (0.0..=1.0).contains(&share) {
            return Ok(Self((share * f64::from(Self::WHOLE)).round() as u32));
        }
        Err(Error::Config(format!(
            "protected_share is {share}; it can be 0 (no block is kept for its priority) to 1 (the \
             whole pool)"
        )))
    }

    /// From 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// So many of some blocks.
    pub fn of(self, num_blocks: usize) -> usize {
        (num_blocks as u64 * u64::from(self.0) / u64::from(Self::WHOLE)) as usize
    }
}

impl Default for ProtectedShare {
    fn default() -> Self {
        Self(Self::WHOLE / 4)
    }
}

/// How it is decided what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// As vLLM does, by the values of a [`Policy`].
    #[default]
    Standard,
    /// By what blocks are worth and what was seen of their reuse; see [`crate::pool::Adaptive`].
    Adaptive,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            recycle_order: RecycleOrder::default(),
            reachable_block_mask: true,
            retention_interval: None,
            pin_min_drop_size: None,
            protected_share: ProtectedShare::default(),
        }
    }
}

impl Policy {
    /// The policy that needs no option.
    pub fn adaptive() -> Self {
        Self { retention: Retention::Adaptive, ..Self::default() }
    }

    /// The retention interval called `auto`, in tokens (vllm-ascend PR 9684).
    pub const AUTO_RETENTION_INTERVAL: usize = 32_768;

    /// The drop, in blocks, below which a window drop is a decode tail without value
    /// (vLLM PR 40676).
    pub const DEFAULT_PIN_MIN_DROP_SIZE: usize = 16;

    /// Whether what leaves a window is pinned too. With an interval only the tails at its boundaries
    /// are cached, seldom the window that a drop leaves, and without them no pinned block of full
    /// attention can be hit; there is no decode tail without value among them, however small a drop.
    pub(super) fn pins_left_tails(&self) -> bool {
        self.pin_min_drop_size.is_some() && self.retention_interval.is_some()
    }

    /// Checks each part, and that none contradicts another.
    pub fn check_parts(&self) -> Result<()> {
        if self.pin_min_drop_size == Some(0) {
            return Err(Error::Config(
                "pin_min_drop_size is 0; give at least 1 block, or None to switch pinning off"
                    .into(),
            ));
        }
        if self.retention == Retention::Standard
            && self.protected_share != ProtectedShare::default()
        {
            return Err(Error::Config(
                "protected_share goes with adaptive retention; leave it out, or give \
                 retention='adaptive'"
                    .into(),
            ));
        }
        let Self { protected_share, .. } = *self;
        if self.retention == Retention::Adaptive
            && *self != (Self { protected_share, ..Self::adaptive() })
        {
            return Err(Error::Config(
                "adaptive retention decides by itself what is kept and in which order it is \
                 recycled; leave recycle_order, reachable_block_mask, retention_interval and \
                 pin_min_drop_size at their defaults"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Checks the policy against the model it is for: whether any group `has_sliding_window`, and
    /// the scheduler's block size in tokens.
    pub fn validate(&self, has_sliding_window: bool, scheduler_block_size: usize) -> Result<()> {
        self.check_parts()?;
        let Some(interval) = self.retention_interval else { return Ok(()) };
        if !has_sliding_window {
            return Err(Error::Config(format!(
                "retention_interval is {interval}, but no KV cache group has a sliding window, \
                 so it would have no effect; set it to None"
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
