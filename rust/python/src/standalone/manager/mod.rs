//! The standalone manager: it converts arguments, calls the core, and converts results.

mod cache;
mod scheduling;
mod tables;
mod worker;

mod construction;

pub(crate) use construction::PyManager;
