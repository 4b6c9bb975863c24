//! Loads the probes into the running kernel (`kernel`), reads their data (`source`), and decodes each record
//! (`decode`). It knows neither the node nor what is decided.

pub mod kernel;
pub mod source;

pub mod decode;
