//! Replays over time: requests arrive, are sent to one of several instances and wait for its steps.

mod arrivals;
mod fleet;
mod recorded;
mod resets;
mod served;

pub use arrivals::Arrivals;
pub use served::{InstanceReport, Served};

use kvoxide_core::Error;

use crate::cache::Cache;
use crate::clairvoyant::BoundModel;
use crate::clock::StepTime;
use crate::report::Report;
use crate::router::Routing;
use crate::scheduler::{Control, Settings, Setup, Stopped};
use crate::trace::Trace;
use fleet::Fleet;

/// The settings of a replay over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// The duration of steps.
    pub step_time: StepTime,
    /// The rule for the times of arrivals.
    pub arrivals: Arrivals,
    /// The number of instances, each with its own scheduler and pool.
    pub instances: usize,
    /// The rule that chooses an instance for a request.
    pub routing: Routing,
    /// Whether recorded steps that are followed take the time that they took on the server. The
    /// modelled duration then says only how much longer or shorter other work takes.
    pub as_recorded: bool,
}

/// The most instances.
pub const MAX_INSTANCES: usize = 1024;

impl Serving {
    /// Returns the settings for one instance with default step times.
    pub fn one(arrivals: Arrivals) -> Self {
        let (step_time, routing) = (StepTime::default(), Routing::RoundRobin);
        Self { step_time, arrivals, instances: 1, routing, as_recorded: false }
    }

    /// Checks the settings.
    pub fn check(&self) -> Result<(), Error> {
        let Self { step_time, arrivals, instances, routing, .. } = self;
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

/// Replays a trace over time.
pub fn serve(
    trace: &Trace,
    settings: &Settings,
    serving: &Serving,
    control: &Control,
) -> Result<(Report, Served), Stopped> {
    serving.check()?;
    let instances = serving.instances;
    if settings.has_bound && instances > 1 {
        let message = format!("a bound works only with one instance; there are {instances}");
        return Err(Error::Config(message).into());
    }
    let setup = Setup::new(trace, settings, control)?;
    let fleet = (trace, serving, settings.concurrency);
    match setup.has_pool {
        true => {
            let bounded = setup.bounded(&setup.pool()?);
            replay(&setup, fleet, || setup.pool(), bounded)
        }
        false => replay(&setup, fleet, || setup.unlimited(), None),
    }
}

fn replay<C: Cache>(
    setup: &Setup<'_>,
    (trace, serving, concurrency): (&Trace, &Serving, usize),
    cache: impl Fn() -> Result<C, Error>,
    bounded: Option<BoundModel>,
) -> Result<(Report, Served), Stopped> {
    let runs = (0..serving.instances).map(|_| Ok(setup.run(cache()?)));
    let runs = runs.collect::<Result<Vec<_>, Error>>()?;
    if setup.follows_schedule() {
        return recorded::follow(trace, serving, runs, bounded);
    }
    Fleet::new(trace, serving, runs, concurrency)?.finish(bounded)
}
