//! What a request asks for: how its blocks are to be kept beside those of others.

use crate::error::{Error, Result};

/// A retention priority, and for how long it holds. Both are those of TensorRT-LLM's
/// `KvCacheRetentionConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    priority: u8,
    lifetime: Option<u64>,
}

impl Claim {
    /// The priority of who asks for none.
    pub const DEFAULT_PRIORITY: u8 = 50;
    /// The highest.
    pub const MAX_PRIORITY: u8 = 100;

    /// A priority from 0 to 100, and the seconds after a block's last use until it counts as 50
    /// again; `None` for no end.
    pub fn new(priority: i64, seconds: Option<f64>) -> Result<Self> {
        let is_priority = |&priority: &u8| priority <= Self::MAX_PRIORITY;
        let Some(priority) = u8::try_from(priority).ok().filter(is_priority) else {
            return Err(Error::Request(format!(
                "a retention priority is {priority}; it can be 0 to {}, and {} is that of who asks \
                 for none",
                Self::MAX_PRIORITY,
                Self::DEFAULT_PRIORITY
            )));
        };
        match seconds {
            Some(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
                Err(Error::Request(format!(
                    "a time to live is {seconds}; it must be more than 0 seconds, or left out for \
                     one without an end"
                )))
            }
            _ => Ok(Self { priority, lifetime: seconds.map(milliseconds) }),
        }
    }

    /// From 0 to 100.
    pub fn priority(self) -> u8 {
        self.priority
    }

    /// Whether it asks for nothing.
    pub fn is_default(self) -> bool {
        self.priority == Self::DEFAULT_PRIORITY
    }

    /// Whether it ends by itself, so that somebody has to tell the time.
    pub fn has_end(self) -> bool {
        self.lifetime.is_some() && !self.is_default()
    }

    /// What a block is entitled to that is used now.
    pub(crate) fn from(self, now: u64) -> Standing {
        let until = self.lifetime.map_or(Standing::NO_END, |lifetime| now.saturating_add(lifetime));
        Standing { priority: self.priority, until }
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil() as u64
}

/// What a block is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// From 0 to 100, but 50.
    pub priority: u8,
    /// Until when, in milliseconds.
    pub until: u64,
}

impl Standing {
    /// The end of what has none.
    pub const NO_END: u64 = u64::MAX;
    pub(crate) const NONE: Self = Self { priority: Claim::DEFAULT_PRIORITY, until: 0 };

    pub(crate) fn is_live(self, now: u64) -> bool {
        self.until > now
    }

    /// Whether it is below those of the default priority.
    pub(crate) fn is_low(self) -> bool {
        self.priority < Claim::DEFAULT_PRIORITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_priority_or_no_time_is_refused() {
        for (priority, seconds) in
            [(-1, None), (101, None), (300, None), (60, Some(0.0)), (60, Some(-1.0))]
        {
            assert!(Claim::new(priority, seconds).is_err(), "{priority} {seconds:?}");
        }
        for seconds in [f64::NAN, f64::INFINITY] {
            assert!(Claim::new(60, Some(seconds)).is_err());
        }
    }

    #[test]
    fn a_time_to_live_ends_after_its_seconds_and_no_sooner() {
        let claim = Claim::new(60, Some(0.0005)).expect("half a millisecond");
        assert!(claim.has_end() && claim.from(7).is_live(7) && !claim.from(7).is_live(8));
        let endless = Claim::new(60, None).expect("a priority");
        assert!(!endless.has_end() && endless.from(7).is_live(u64::MAX - 1));
        assert!(Claim::new(50, Some(1e300)).is_ok_and(|claim| claim.is_default()));
    }
}
