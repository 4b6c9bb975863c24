//! Values of options.

use std::{path::PathBuf, time::Duration};

use clap::builder::{PathBufValueParser, TypedValueParser};
use jiff::SignedDuration;

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

/// As in `30s`, `5m` or `1h30m`; a bare number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => {
            let signed: SignedDuration = text.parse().map_err(|e: jiff::Error| e.to_string())?;
            Duration::try_from(signed).unwrap_or_default()
        }
    };
    if duration.is_zero() { Err("must be longer than 0".into()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_seconds() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs_f64());
        for (text, expected) in [("20", 20.0), ("0.5", 0.5), ("20s", 20.0), ("1m30s", 90.0)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["0", "-3", "-3s", "nan", "inf", "soon", ""] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
