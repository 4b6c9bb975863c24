//! What is to go wrong: a word in a file that is read again at each call.

use std::{fs, io, path::PathBuf};

use serde::Deserialize;
use thiserror::Error;

/// What goes wrong. Publishing always works.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The driver forgets what it published, as one does that did not write its state before it
    /// ended: from then on unpublishing answers OK and unmounts nothing.
    Forget,
    /// Unpublishing answers `NotFound`.
    NotFound,
    /// Unpublishing answers `Internal`.
    Internal,
    /// Unpublishing answers `Aborted`.
    Aborted,
    /// Unpublishing never answers, and holds the volume's lock until the driver ends: later calls for
    /// it are answered with `Aborted`, as drivers do whose unmount hangs.
    Hang,
    /// Unpublishing unmounts in a mount namespace of its own, and answers OK.
    Elsewhere,
    /// Unpublishing unmounts in the driver's own mount namespace and leaves the directory to kubelet, as
    /// drivers do that only call umount.
    OnlyUnmount,
    /// Unpublishing calls umount whatever is there, and answers `Internal` when nothing is mounted,
    /// although the specification asks for OK.
    NotIdempotent,
}

/// A fault, and whom it strikes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// What goes wrong.
    pub fault: Fault,
    /// Only with this volume; without it, with all.
    pub volume: Option<String>,
}

impl Order {
    /// What happens to a volume.
    pub fn fault(&self, volume: &str) -> Fault {
        match &self.volume {
            Some(only) if only != volume => Fault::None,
            _ => self.fault,
        }
    }
}

/// Why it is not known what is to go wrong.
#[derive(Debug, Error)]
pub enum BadOrder {
    /// The file is there and cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What reading it answered.
        error: io::Error,
    },
    /// It says something that is not a fault.
    #[error("{} says no fault: {error}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

/// Where it is said what is to go wrong.
#[derive(Clone, Debug)]
pub struct Control {
    file: Option<PathBuf>,
}

impl Control {
    /// Without a file, nothing goes wrong.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file }
    }

    /// What is said now. A file that is not there, or is empty as one is between being truncated and
    /// being written, says nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be read or says something else than a fault: no call is answered then as if all
    /// were well.
    pub fn read(&self) -> Result<Order, BadOrder> {
        let Some(path) = &self.file else { return Ok(Order::default()) };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Order::default()),
            Err(error) => return Err(BadOrder::Unreadable { path: path.clone(), error }),
        };
        parse(text.trim()).map_err(|error| BadOrder::Unknown { path: path.clone(), error })
    }
}

fn parse(text: &str) -> Result<Order, serde_json::Error> {
    if text.is_empty() {
        Ok(Order::default())
    } else if text.starts_with('{') {
        serde_json::from_str(text)
    } else {
        let fault = serde_json::from_value(text.into())?;
        Ok(Order { fault, volume: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_strikes_all_volumes() {
        for (word, fault) in [
            ("", Fault::None),
            ("none", Fault::None),
            ("forget", Fault::Forget),
            ("not-found", Fault::NotFound),
            ("internal", Fault::Internal),
            ("aborted", Fault::Aborted),
            ("hang", Fault::Hang),
            ("elsewhere", Fault::Elsewhere),
            ("only-unmount", Fault::OnlyUnmount),
            ("not-idempotent", Fault::NotIdempotent),
        ] {
            assert_eq!(parse(word).unwrap().fault("any"), fault, "{word}");
        }
    }

    #[test]
    fn an_object_may_name_the_volume() {
        let order = parse(r#"{"fault": "hang", "volume": "v1"}"#).unwrap();
        assert_eq!((order.fault("v1"), order.fault("v2")), (Fault::Hang, Fault::None));
    }

    #[test]
    fn what_is_no_fault_is_an_error_that_lists_them() {
        let error = parse("explode").unwrap_err().to_string();
        assert!(error.contains("explode") && error.contains("not-idempotent"), "{error}");
        assert!(parse(r#"{"fault": "hang", "volum": "v1"}"#).is_err());
        assert!(parse("{}").is_err());
    }

    #[test]
    fn the_file_is_read_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("fault");
        let control = Control::new(Some(file.clone()));
        assert_eq!(control.read().unwrap(), Order::default());
        fs::write(&file, "hang\n").unwrap();
        assert_eq!(control.read().unwrap().fault("v"), Fault::Hang);
        fs::write(&file, "nonsense").unwrap();
        let error = control.read().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{} says no fault", file.display())), "{error}");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(matches!(control.read(), Err(BadOrder::Unreadable { .. })));
    }
}
