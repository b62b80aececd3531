//! Offloading to CPU memory: the host tier, for servers without vLLM and for the adapter; the keys of
//! requests, and the plans that vLLM's connector makes with them.
//!
//! In the order of its layers: each module uses only those below it.

mod adaptive;
mod leaving;

mod planner;

mod leaving_plan;
mod load;
mod together;

mod tier;

mod state;

mod pair;

mod transfers;

mod copied;

mod plan;
mod request;

mod keys;

mod group_keys;
mod groups;
mod request_keys;

mod block_id_set;
mod hash_lengths;

pub(crate) use block_id_set::VllmBlockIds;
pub(crate) use leaving_plan::LeavingPlan;
pub(crate) use plan::{PyHostEvent, PyHostStorePlan};
pub(crate) use planner::{LoadPlan, OffloadPlanner, StorePlan};
pub(crate) use request::PyHostRequest;
pub(crate) use request_keys::{ChunkKeys, GroupKeys, RequestKeys};
pub(crate) use tier::PyHostTier;
pub(crate) use transfers::{PyHostStep, PyHostTransfer};
