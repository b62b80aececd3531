//! The host tier, for servers without vLLM and for the adapter.

mod tier;

mod plan;
mod request;
mod state;

mod keys;

pub(crate) use plan::{PyHostEvent, PyHostStorePlan};
pub(crate) use request::PyHostRequest;
pub(crate) use tier::PyHostTier;
