//! Serving over time: requests arrive, go to one of several instances, and wait for its steps.

mod arrivals;
mod fleet;
mod served;

pub use arrivals::Arrivals;
pub use served::{InstanceReport, Served};

use kvoxide_core::Error;

use crate::bound::Groups;
use crate::cache::Cache;
use crate::clock::StepTime;
use crate::report::Report;
use crate::router::Routing;
use crate::scheduler::{Control, Plan, Settings, Stopped};
use crate::trace::Trace;
use fleet::Fleet;

/// Who serves, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// How long steps take.
    pub step_time: StepTime,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// Instances, each with a scheduler and a pool of its own.
    pub instances: usize,
    /// Which instance a request goes to.
    pub routing: Routing,
}

/// Most instances.
pub const MAX_INSTANCES: usize = 1024;

impl Serving {
    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), Error> {
        let Self { step_time, arrivals, instances, routing } = self;
        step_time.check()?;
        arrivals.check()?;
        routing.check()?;
        if !(1..=MAX_INSTANCES).contains(instances) {
            let message = format!("instances is {instances}; it can be 1 to {MAX_INSTANCES}");
            return Err(Error::Config(message));
        }
        Ok(())
    }
}

/// Plays a trace to its end over time.
pub fn serve(
    trace: &Trace,
    settings: &Settings,
    serving: &Serving,
    control: &Control,
) -> Result<(Report, Served), Stopped> {
    serving.check()?;
    let instances = serving.instances;
    if settings.has_bound && instances > 1 {
        let message = format!("a bound is found for one pool, not for {instances} instances");
        return Err(Error::Config(message).into());
    }
    let plan = Plan::new(trace, settings, control)?;
    let house = (trace, serving, settings.concurrency);
    match plan.has_pool {
        true => {
            let bounded = plan.bounded(&plan.pool()?);
            play(&plan, house, || plan.pool(), bounded)
        }
        false => play(&plan, house, || plan.unlimited(), None),
    }
}

fn play<C: Cache>(
    plan: &Plan<'_>,
    (trace, serving, concurrency): (&Trace, &Serving, usize),
    cache: impl Fn() -> Result<C, Error>,
    bounded: Option<Groups>,
) -> Result<(Report, Served), Stopped> {
    let runs = (0..serving.instances).map(|_| Ok(plan.run(cache()?)));
    let runs = runs.collect::<Result<Vec<_>, Error>>()?;
    Fleet::new(trace, serving, runs, concurrency)?.finish(bounded)
}
