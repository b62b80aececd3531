//! Makes arbitrary calls of a manager. After each call every invariant holds, a refused call
//! changes nothing, and every block is free at the end.

#[expect(missing_docs, reason = "fields have the names of arguments")]
mod call;
mod config;
mod request;
mod traffic;

use arbitrary::{Arbitrary, Unstructured};
use kvoxide_core::Manager;

pub use call::{Allocation, Amount, Call};
pub use traffic::Traffic;

use config::Config;

const MAX_CALLS: usize = 200;

#[derive(Arbitrary, Debug)]
struct Input {
    config: Config,
    calls: Vec<Call>,
}

/// Makes the calls that `data` describes, if its configuration is valid.
pub fn run(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let Ok(manager) = Manager::new(input.config.manager_config()) else { return };
    let mut traffic = Traffic::new(manager);
    for call in input.calls.iter().take(MAX_CALLS) {
        traffic.make(call);
    }
    traffic.end();
}
