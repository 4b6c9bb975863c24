//! Values of options.

use std::{path::PathBuf, time::Duration};

use clap::builder::{PathBufValueParser, TypedValueParser};

/// Whether to ask the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Api {
    /// With the running kubelet's credentials, if it has any of its own.
    Auto,
    /// Not at all.
    Never,
    /// With those of this kubeconfig.
    File(PathBuf),
}

pub(super) fn api() -> impl TypedValueParser<Value = Api> {
    // The name of a file need not be text.
    PathBufValueParser::new().map(|path| match path.to_str() {
        Some("auto") => Api::Auto,
        Some("never") => Api::Never,
        _ => Api::File(path),
    })
}

pub(super) fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if times > 0.0 && f64::is_finite(times) => Ok(times),
        _ => Err("must be a number above 0, as in 1 or 60".into()),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let signed: jiff::SignedDuration = text.parse().map_err(|e: jiff::Error| e.to_string())?;
    Duration::try_from(signed)
        .ok()
        .filter(|d| !d.is_zero())
        .ok_or_else(|| "must be longer than nothing".into())
}
