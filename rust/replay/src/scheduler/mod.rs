//! The scheduler model: what vLLM's scheduler does to a manager, step by step.
//!
//! A step first serves the running requests in their order, each with the tokens it lacks (one
//! when it decodes, a chunk while it prefills), as long as the step's budget lasts. When blocks run
//! out, the newest running request is preempted: it gives its blocks back and waits again, first in
//! line. If nobody was preempted, waiting requests are admitted in their order. Every generated
//! token is unique and gets a slot of its own; a request ends when its last one has it. In models
//! with recurrent states, chunks end where states are cached.

mod instance;
mod plan;
mod run;
mod settings;
mod step_clock;

pub(crate) use plan::Plan;
pub(crate) use run::Run;
pub use settings::{Control, Settings, Stopped};

use crate::report::Report;
use crate::trace::Trace;

/// Plays a trace to its end.
pub fn run(trace: &Trace, settings: &Settings, control: &Control) -> Result<Report, Stopped> {
    let plan = Plan::new(trace, settings, control)?;
    match plan.has_pool {
        true => {
            let cache = plan.pool()?;
            let bounded = plan.bounded(&cache);
            plan.run(cache).finish(bounded)
        }
        false => plan.run(plan.unlimited()?).finish(None),
    }
}
