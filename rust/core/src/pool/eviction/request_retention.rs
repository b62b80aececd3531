//! The retention that a request asks for: priorities for ranges of its tokens, and ranges that it
//! gives up when it ends.

use std::ops::Range;

use super::priority::RetentionPriority;

/// The number of a session. Requests of one session have the same number.
pub type SessionId = u64;

/// The retention that a request asks for.
///
/// A block belongs to a range of tokens if the range contains the block's last token. If several
/// ranges contain it, the last one of them counts. Tokens outside of all ranges have the default
/// priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRetention {
    session: Option<SessionId>,
    priorities: Vec<(Range<usize>, RetentionPriority)>,
    given_up: Vec<Range<usize>>,
    ends_session: bool,
    /// Whether the request releases its blocks now, but uses them again.
    is_preempted: bool,
}

impl From<RetentionPriority> for RequestRetention {
    fn from(priority: RetentionPriority) -> Self {
        Self::default().with_priority(0..usize::MAX, priority)
    }
}

impl RequestRetention {
    /// Sets the session of the request.
    #[must_use]
    pub fn in_session(self, session: SessionId) -> Self {
        Self { session: Some(session), ..self }
    }

    /// Asks for a priority for a range of tokens.
    #[must_use]
    pub fn with_priority(mut self, tokens: Range<usize>, priority: RetentionPriority) -> Self {
        self.priorities.push((tokens, priority));
        self
    }

    /// Gives a range of tokens up when the request ends.
    #[must_use]
    pub fn giving_up(mut self, tokens: Range<usize>) -> Self {
        self.given_up.push(tokens);
        self
    }

    /// Gives all tokens up when the request ends, because no other request of its session follows.
    #[must_use]
    pub fn ending_session(self) -> Self {
        Self { ends_session: true, ..self.giving_up(0..usize::MAX) }
    }

    /// Returns the retention for a release after which the request continues. It gives nothing up.
    #[must_use]
    pub fn while_preempted(&self) -> Self {
        Self { is_preempted: true, ..self.clone() }
    }

    /// Returns whether the request continues after the release.
    pub fn is_preempted(&self) -> bool {
        self.is_preempted
    }

    /// Returns the priorities that the request asks for, in order.
    pub fn priorities(&self) -> &[(Range<usize>, RetentionPriority)] {
        &self.priorities
    }

    /// Returns the ranges of tokens that the request gives up when it ends.
    pub fn given_up(&self) -> &[Range<usize>] {
        &self.given_up
    }

    /// Returns the session of the request, if it has one.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns whether no other request of the session follows, once this one releases its blocks.
    pub fn ends_session(&self) -> bool {
        self.ends_session && !self.is_preempted
    }

    /// Returns whether some priority ends by itself. Then the caller has to set the time.
    pub fn has_end(&self) -> bool {
        self.priorities.iter().any(|(_, priority)| priority.has_end())
    }

    /// Returns whether the request asks for a priority other than the default, for any token.
    pub(super) fn has_priorities(&self) -> bool {
        self.priorities.iter().any(|(_, priority)| !priority.is_default())
    }

    /// Returns whether the request gives tokens up when it releases its blocks.
    pub fn gives_up_any(&self) -> bool {
        !self.given_up.is_empty() && !self.is_preempted
    }

    /// Returns whether the request gives up the block that ends after `num_tokens` tokens.
    pub(crate) fn gives_up(&self, num_tokens: usize) -> bool {
        num_tokens > 0 && self.given_up.iter().any(|range| range.contains(&(num_tokens - 1)))
    }

    /// Returns the priority for the block that ends after `num_tokens` tokens; `None` for the
    /// default.
    pub(super) fn priority_at(&self, num_tokens: usize) -> Option<RetentionPriority> {
        let last = num_tokens.checked_sub(1)?;
        let asked = self.priorities.iter().rev().find(|(range, _)| range.contains(&last));
        let asked = asked.map(|&(_, priority)| priority).filter(|priority| !priority.is_default());
        asked.filter(|_| !self.gives_up(num_tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(priority: i64) -> RetentionPriority {
        RetentionPriority::new(priority, None).expect("a priority")
    }

    #[test]
    fn a_block_has_the_priority_of_the_last_range_with_its_last_token() {
        let asked = RequestRetention::from(priority(20))
            .with_priority(100..200, priority(80))
            .with_priority(150..160, priority(50));
        let at = |num_tokens| asked.priority_at(num_tokens).map(RetentionPriority::priority);
        assert_eq!(
            [100, 101, 112, 160, 161, 200, 201].map(at),
            [Some(20), Some(80), Some(80), None, Some(80), Some(80), Some(20),]
        );
        assert!(asked.has_priorities() && !asked.gives_up_any());
        assert!(!RequestRetention::from(priority(50)).has_priorities());
    }

    #[test]
    fn tokens_that_are_given_up_have_no_priority() {
        let asked = RequestRetention::from(priority(80)).giving_up(32..64);
        assert_eq!([32, 33, 64, 65].map(|end| asked.gives_up(end)), [false, true, true, false]);
        assert_eq!([32, 48].map(|end| asked.priority_at(end).is_some()), [true, false]);
        let ending = RequestRetention::default().in_session(7).ending_session();
        assert!(ending.ends_session() && ending.gives_up(1) && ending.gives_up(1 << 40));
        let preempted = ending.while_preempted();
        assert!(!preempted.ends_session() && !preempted.gives_up_any());
        assert_eq!(preempted.session(), Some(7));
    }
}
