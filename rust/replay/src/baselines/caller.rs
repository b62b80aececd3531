//! The request whose calls change the pool. A policy that orders blocks does not see it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::trace::Trace;

/// The session of the request that makes the current call, and the number of the call.
#[derive(Debug, Default)]
pub struct Caller {
    session: AtomicU64,
    call: AtomicU64,
}

impl Caller {
    /// Begins a call of a session's request.
    pub fn begin(&self, session: u64) {
        self.session.store(session, Ordering::Relaxed);
        self.call.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the session of the current call.
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::Relaxed)
    }

    /// Returns the number of the current call.
    pub fn call(&self) -> u64 {
        self.call.load(Ordering::Relaxed)
    }
}

/// The sessions of a trace's requests, and the current call.
#[derive(Debug)]
pub struct Callers {
    sessions: Vec<u64>,
    caller: Arc<Caller>,
}

impl Callers {
    /// Creates the callers of a trace. A chat belongs to the session of the chat that it continues.
    /// A request without a session is one of its own.
    pub fn of(trace: &Trace) -> Self {
        let mut roots = HashMap::new();
        let requests = trace.requests().iter().zip((0..=u64::MAX).rev());
        let sessions = requests.map(|(request, own)| {
            let Some(conversation) = request.conversation else { return own };
            let earlier = conversation.continues.and_then(|earlier| roots.get(&earlier)).copied();
            let root = earlier.unwrap_or(conversation.id);
            roots.insert(conversation.id, root);
            root
        });
        Self { sessions: sessions.collect(), caller: Arc::default() }
    }

    /// Returns the current call, for a policy.
    pub fn caller(&self) -> Arc<Caller> {
        self.caller.clone()
    }

    /// Begins a call of a request of the trace.
    pub fn begin(&self, request: u64) {
        self.caller.begin(self.sessions.get(request as usize).copied().unwrap_or(request));
    }
}
