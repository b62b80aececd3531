//! CPU memory in addition to the pool: a host tier that decides like vLLM's offloading connector.
//!
//! [`connector`] has the calls of a scheduler: a look-up after the pool's, a load, the stores of a
//! step, the end of a request. These modules follow it, and each uses
//! only later ones:
//!
//! - [`jobs`]: transfers in progress, and when each of them ends
//! - [`offers`]: which chunks of a request are stored
//! - [`request`]: what the connector knows of a request
//! - [`keys`]: the keys of a request's chunks
//! - [`geometry`]: the groups of a manager as a connector sees them
//! - [`report`], [`settings`]

mod connector;

mod jobs;
mod offers;

mod request;

mod keys;

mod geometry;

mod report;
mod settings;

pub(crate) use connector::{HostConnector, HostTokens};
pub use report::HostReport;
pub use settings::{HostMemory, Link};
