//! Gets the probes into the running kernel (`kernel`), what they see out of it (`source`), and each record read
//! (`decode`). It knows neither the node nor what is decided.

pub mod kernel;
pub mod source;

pub mod decode;
