//! Logs keys that were removed from the index. Look-ups that remember their results read the log.

use crate::block::{BlockId, GroupId};

/// A key that was removed from the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemovedKey {
    /// The block that had the key.
    pub block: BlockId,
    /// The group of the key.
    pub group: GroupId,
    /// The number of prefix tokens that the block's own hash covered.
    pub num_tokens: usize,
}

/// A position in the log: the number of removals before it. Position 0 is before every log.
pub(crate) type LogPosition = u64;

/// The latest removals. The log is kept only while look-ups read it. It restarts when it gets long.
#[derive(Debug)]
pub struct RemovalLog {
    is_kept: bool,
    /// Whether blocks have keys at unknown positions. Then the log is never kept again.
    is_given_up: bool,
    /// The position of the first removal. A gap before it separates the log from earlier logs.
    start: LogPosition,
    removed: Vec<RemovedKey>,
}

impl Default for RemovalLog {
    fn default() -> Self {
        Self { is_kept: false, is_given_up: false, start: 1, removed: Vec::new() }
    }
}

impl RemovalLog {
    const MAX_LEN: usize = 1 << 16;

    /// Ends the log forever, because other code added a key whose position can be wrong.
    pub(crate) fn give_up(&mut self) {
        self.keep(false);
        self.is_given_up = true;
    }

    /// Starts or stops to keep removals.
    pub(crate) fn keep(&mut self, on: bool) {
        let on = on && !self.is_given_up;
        if on != self.is_kept {
            self.is_kept = on;
            self.restart();
        }
    }

    /// Returns whether the log is kept.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    pub(super) fn push(&mut self, key: impl FnOnce() -> RemovedKey) {
        if !self.is_kept {
            return;
        }
        if self.removed.len() == Self::MAX_LEN {
            self.restart();
        }
        self.removed.push(key());
    }

    /// Empties the log. Every reader must start again.
    pub(super) fn restart(&mut self) {
        self.start = self.end() + 1;
        self.removed.clear();
    }

    /// Returns the end of the log.
    pub(crate) fn end(&self) -> LogPosition {
        self.start + self.removed.len() as u64
    }

    /// Returns the removals since a position; `None` if the log starts later.
    pub(crate) fn since(&self, position: LogPosition) -> Option<&[RemovedKey]> {
        let num_read = position.checked_sub(self.start).filter(|_| self.is_kept)?;
        Some(&self.removed[num_read as usize..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(block: BlockId) -> RemovedKey {
        RemovedKey { block, group: 0, num_tokens: 1 }
    }

    #[test]
    fn a_reader_sees_what_came_after_its_position_until_the_log_starts_anew() {
        let mut log = RemovalLog::default();
        assert!(log.since(LogPosition::default()).is_none());
        log.push(|| key(1));
        log.keep(true);
        let start = log.end();
        log.push(|| key(2));
        log.push(|| key(3));
        let blocks = |keys: &[RemovedKey]| keys.iter().map(|key| key.block).collect::<Vec<_>>();
        assert_eq!(log.since(start).map(blocks), Some(vec![2, 3]));
        assert_eq!(log.since(log.end()).map(blocks), Some(vec![]));
        for block in 0..RemovalLog::MAX_LEN as BlockId {
            log.push(|| key(block));
        }
        assert!(log.since(start).is_none());
        log.give_up();
        log.keep(true);
        assert!(log.since(log.end()).is_none());
    }
}
