//! The retention that random requests ask for.

use std::ops::Range;
use std::sync::Arc;

use kvoxide_core::{RequestRetention, RetentionPriority};
use proptest::prelude::*;

use crate::adaptive::priority::{Asked, Retention};

/// The retention that a request asks for.
#[derive(Clone, Debug, Default)]
pub struct AskedFor {
    /// The priority for some tokens, and the time to live in half seconds; 0 for no limit.
    priorities: Vec<(Range<usize>, u8, u64)>,
    given_up: Option<Range<usize>>,
    session: Option<u64>,
    ends_session: bool,
}

pub fn asked_for() -> impl Strategy<Value = AskedFor> {
    let tokens = || {
        let some = (0..1000_usize, 0..1000_usize).prop_map(|(start, len)| start..start + len);
        prop_oneof![Just(0..usize::MAX), some]
    };
    let priority = prop_oneof![Just(0_u8), Just(30), Just(50), Just(80)];
    let priorities = prop::collection::vec((tokens(), priority, 0..8_u64), 1..3);
    let priorities = prop::option::weighted(0.2, priorities);
    let session = prop::option::weighted(0.5, 0..4_u64);
    (priorities, prop::option::weighted(0.1, tokens()), session, prop::bool::weighted(0.3))
        .prop_map(|(priorities, given_up, session, ends_session)| AskedFor {
            priorities: priorities.unwrap_or_default(),
            given_up,
            session,
            ends_session: ends_session && session.is_some(),
        })
}

impl AskedFor {
    pub fn of_engine(&self) -> Arc<RequestRetention> {
        let mut asked = RequestRetention::default();
        for &(ref tokens, priority, half_seconds) in &self.priorities {
            let seconds = (half_seconds > 0).then_some(half_seconds as f64 / 2.0);
            let priority = RetentionPriority::new(i64::from(priority), seconds);
            asked = asked.with_priority(tokens.clone(), priority.expect("a priority"));
        }
        if let Some(tokens) = &self.given_up {
            asked = asked.giving_up(tokens.clone());
        }
        if let Some(session) = self.session {
            asked = asked.in_session(session);
        }
        if self.ends_session { asked.ending_session().into() } else { asked.into() }
    }

    pub fn of_model(&self) -> Retention {
        let asked = |&(ref tokens, priority, half_seconds): &(Range<usize>, u8, u64)| Asked {
            tokens: tokens.clone(),
            priority,
            time_to_live: (half_seconds > 0).then_some(500 * half_seconds),
        };
        let whole = self.ends_session.then_some(0..usize::MAX);
        Retention {
            session: self.session,
            ends_session: self.ends_session,
            priorities: self.priorities.iter().map(asked).collect(),
            given_up: self.given_up.iter().cloned().chain(whole).collect(),
        }
    }
}
