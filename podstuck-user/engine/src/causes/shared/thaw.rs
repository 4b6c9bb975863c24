//! The thaw of a frozen file system (fsfreeze(8)).

use std::path::Path;

use crate::command::{Step, View};

/// The command that thaws the file system mounted at `point`. It fails if the file system is not frozen.
pub(crate) fn thaw(view: View, point: &Path, mount: Option<u32>) -> Step {
    view.on_mounted("thaw the file system", point, mount, |it| format!("fsfreeze --unfreeze {it}"))
}
