//! Replays a trace: alone, as fast as it goes, or over time.

use crate::report::Report;
use crate::scheduler::{Control, Settings, Setup, Stopped};
use crate::serving::{Arrivals, Serving, serve};
use crate::trace::Trace;

/// Replays a trace.
pub fn run(trace: &Trace, settings: &Settings, control: &Control) -> Result<Report, Stopped> {
    if settings.follows_schedule {
        let serving = Serving::one(Arrivals::Full);
        return serve(trace, settings, &serving, control).map(|(report, _)| report);
    }
    let setup = Setup::new(trace, settings, control)?;
    match setup.has_pool {
        true => {
            let cache = setup.pool()?;
            let bounded = setup.bounded(&cache);
            setup.run_alone(cache).finish(bounded)
        }
        false => setup.run_alone(setup.unlimited()?).finish(None),
    }
}
