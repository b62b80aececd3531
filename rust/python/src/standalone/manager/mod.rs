//! The standalone manager: converts arguments, calls the core, converts results.

mod cache;
mod scheduling;
mod tables;
mod worker;

mod construction;

pub(crate) use construction::PyManager;
